"""The instruction set of the GDDR6-AiM generation."""

from wordline.isa.declare import InstructionSet
from wordline.isa.gddr6_aim.bank import BANK_COMMANDS
from wordline.isa.gddr6_aim.control import CONTROL
from wordline.isa.gddr6_aim.link import LINK_COMMANDS
from wordline.isa.gddr6_aim.vector import VECTOR_COMMANDS, VECTOR_CONSTANTS

ISA = InstructionSet("gddr6-aim", 1, CONTROL + BANK_COMMANDS + VECTOR_COMMANDS + LINK_COMMANDS, VECTOR_CONSTANTS)
