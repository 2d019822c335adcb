"""Instruction sets: each instruction declared once, everything else derived from the declaration."""

from wordline.errors import WordlineError
from wordline.isa.declare import InstructionSet


def instruction_set(generation: str) -> InstructionSet:
    """The instruction set of a generation. Raises ``WordlineError("unknown-generation")``."""
    if generation == "gddr6-aim":
        from wordline.isa.gddr6_aim import ISA

        return ISA
    raise WordlineError(
        "unknown-generation",
        f"no instruction set is declared for generation {generation!r}",
        remedy="known generations: gddr6-aim",
    )
