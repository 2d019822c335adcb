"""The generations that machine files can name, each with the sections of its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wordline.machines import gddr6_aim, hbm2_pim


@dataclass(frozen=True)
class Generation:
    """Sections in the order of the files, reports and the hash; ``problems`` says which relations do not hold.

    ``native``: whether the native models implement it.
    """

    name: str
    sections: Mapping[str, type]
    problems: Callable[[Mapping[str, Any]], list[str]]
    native: bool


GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation("gddr6-aim", gddr6_aim.SECTIONS, gddr6_aim.problems, native=True),
        Generation("hbm2-pim", hbm2_pim.SECTIONS, hbm2_pim.problems, native=False),
    )
}


def native_formula(section: str, name: str) -> str | None:
    """The formula of a derived field of the machines that the native models implement; None if it is not derived."""
    for generation in GENERATIONS.values():
        if generation.native and section in generation.sections:
            derived: Mapping[str, tuple[str, str]] = getattr(generation.sections[section], "DERIVED", {})
            if name in derived:
                return derived[name][1]
    return None
