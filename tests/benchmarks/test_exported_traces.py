"""Profile `aim-simulator` predicts what the public simulator printed for our own programs as exported today."""

from __future__ import annotations

import pytest

from benchmarks.exported_traces import PROGRAMS, REMEDY, hash_of, predicted, totals, trace_of


def test_every_program_has_a_total() -> None:
    assert list(totals()) == list(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_total_cycles(program: str) -> None:
    text, known = trace_of(program), totals()[program]
    if hash_of(text) != known.sha256:
        pytest.fail(f"the trace of {program!r} is another than the one that the public simulator was given: {REMEDY}")
    assert text.count("\n") == known.lines
    assert predicted(program, text) == known.cycles
