"""The instruction set of HBM2-PIM: commands of a pseudo-channel, its instruction buffer, the controller's."""

from wordline.isa.controller.control import CONTROL
from wordline.isa.controller.link import LINK_COMMANDS
from wordline.isa.controller.vector import VECTOR_COMMANDS, VECTOR_CONSTANTS
from wordline.isa.declare import InstructionSet
from wordline.isa.hbm2_pim.bank import BANK_COMMANDS, KINDS
from wordline.isa.hbm2_pim.crf import CRF

ISA = InstructionSet(
    "hbm2-pim",
    1,
    CONTROL + BANK_COMMANDS + VECTOR_COMMANDS + LINK_COMMANDS,
    VECTOR_CONSTANTS,
    kinds=KINDS,
    buffer=CRF,
    mask_words=2,
)
