"""The argument block of a decode step: where the compiler puts the words that the artifact names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wordline.artifact import ArgumentNames
from wordline.compiler.integers import round_up
from wordline.compiler.layout import KVLayout, page_numbers


def _places() -> dict[str, int]:
    """Word indices by name, in order; an address takes two words."""
    places: dict[str, int] = {}
    at = 0
    for name in ArgumentNames.REQUIRED:
        places[name] = at
        at += 2 if name in ArgumentNames.ADDRESSES else 1
    return places


ARGUMENTS = _places()
ARGUMENT_WORDS = round_up(max(ARGUMENTS.values()) + 1, 2)
"""Words of the block: whole 64-bit words."""

TOKEN = ARGUMENTS[ArgumentNames.TOKEN]
POSITION = ARGUMENTS[ArgumentNames.POSITION]
FLAGS = ARGUMENTS[ArgumentNames.FLAGS]
PAGE_TABLE = ARGUMENTS[ArgumentNames.PAGE_TABLE_BASE]
LOGITS_ADDRESS = ARGUMENTS[ArgumentNames.LOGITS_ADDRESS]
NEXT_TOKEN = ARGUMENTS[ArgumentNames.NEXT_TOKEN]


def argument_memory(kv: KVLayout, first_row: int, context: int) -> npt.NDArray[np.int32]:
    """Controller memory of a step that attends over ``context`` tokens and wants logits, from word 0 up.

    The argument block, and behind it the page table, in which every page has rows of its own from ``first_row`` on.
    """
    arguments = np.zeros(ARGUMENT_WORDS, np.int32)
    arguments[POSITION] = context - 1
    arguments[FLAGS] = ArgumentNames.FLAG_LOGITS
    arguments[PAGE_TABLE] = ARGUMENT_WORDS
    table = first_row + kv.rows_per_page * page_numbers(kv)
    return np.concatenate([arguments, table.astype(np.int32)])
