"""What optimisations gain: the page has a section for each, made of the committed figures, which hold."""

from __future__ import annotations

import re

import pytest

from benchmarks.optimisations import PAGE, WORKLOADS, committed, with_figures
from wordline.compiler.optimisations import ALL, NAMES, NONE


def test_every_optimisation_has_a_section_with_the_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- gains of (\w+) -->", page) == ["all", *NAMES]
    assert with_figures(page, committed()) == page, "run: python -m benchmarks.optimisations --measure"


def test_figures_are_of_every_optimisation() -> None:
    assert list(committed()) == list(WORKLOADS)
    for figures in committed().values():
        assert list(figures.only) == list(figures.without) == list(NAMES)


def test_each_gains_somewhere() -> None:
    """One that gains nothing is removed."""
    for name in NAMES:
        assert max(f.last_in(name) for f in committed().values()) > 0, name


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_figures_hold(workload: str) -> None:
    figures = committed()[workload]
    remedy = "run: python -m benchmarks.optimisations --measure"
    assert WORKLOADS[workload].cycles(ALL) == figures.everything, remedy
    assert WORKLOADS[workload].cycles(NONE) == figures.nothing, remedy
