"""The instruction set of the GDDR6-AiM generation: bank commands of its own, and the controller's instructions."""

from wordline.isa.controller.control import CONTROL
from wordline.isa.controller.link import LINK_COMMANDS
from wordline.isa.controller.vector import VECTOR_COMMANDS, VECTOR_CONSTANTS
from wordline.isa.declare import InstructionSet
from wordline.isa.gddr6_aim.bank import BANK_COMMANDS, KINDS

ISA = InstructionSet(
    "gddr6-aim", 1, CONTROL + BANK_COMMANDS + VECTOR_COMMANDS + LINK_COMMANDS, VECTOR_CONSTANTS, kinds=KINDS
)
