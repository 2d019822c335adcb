"""Where the instructions of a program come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Instructions ``first`` to ``last`` (inclusive) of a stream and the operation they come from.

    ``kind`` groups operations in reports ("gemv", "attention", "vector", ...); ``loc`` is the place in the model.
    """

    stream: int
    first: int
    last: int
    op: str
    kind: str
    loc: str
