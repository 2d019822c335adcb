"""Instruction sets: each instruction declared once, everything else derived from the declaration."""

from importlib import import_module

from wordline.errors import WordlineError
from wordline.isa.declare import InstructionSet

#: The generations that have an instruction set: a folder each, with underscores.
GENERATIONS = ("gddr6-aim", "hbm2-pim")


def instruction_set(generation: str) -> InstructionSet:
    """The instruction set of a generation. Raises ``WordlineError("unknown-generation")``."""
    if generation not in GENERATIONS:
        raise WordlineError(
            "unknown-generation",
            f"no instruction set is declared for generation {generation!r}",
            remedy=f"known generations: {', '.join(GENERATIONS)}",
        )
    found: InstructionSet = import_module(f"wordline.isa.{generation.replace('-', '_')}").ISA
    return found
