"""What a check finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Violation:
    """One command that breaks one rule.

    ``rule`` is the sum of constants of an interval ("nRP"), or the name of a rule about state ("row-open"). Where an
    earlier command matters, ``required`` is the number of cycles that must lie between, ``actual`` what does.
    """

    rule: str
    text: str
    channel: int
    cycle: int
    command: str
    bank: int
    row: int
    earlier: str | None = None
    earlier_cycle: int | None = None
    earlier_bank: int | None = None
    required: int | None = None
    actual: int | None = None

    def after(self, command: str, cycle: int, bank: int, required: int | None, actual: int) -> Violation:
        """The same, with the earlier command that is too close."""
        return replace(self, earlier=command, earlier_cycle=cycle, earlier_bank=bank, required=required, actual=actual)

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Report:
    """The result of one check. ``violations`` are the first ones; ``by_rule`` counts all."""

    name: str
    profile: str
    commands: int
    channels: tuple[int, ...]
    cycles: int
    """The cycle after the last command."""
    count: int
    by_rule: Mapping[str, int]
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return self.count == 0

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "profile": self.profile,
            "commands": self.commands,
            "channels": list(self.channels),
            "cycles": self.cycles,
            "count": self.count,
            "by_rule": dict(self.by_rule),
            "violations": [violation.document() for violation in self.violations],
        }


class Findings:
    """Counts violations and keeps the first ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0
        self.by_rule: Counter[str] = Counter()
        self.kept: list[Violation] = []

    def add(self, violation: Violation) -> None:
        """Take one."""
        self.count += 1
        self.by_rule[violation.rule] += 1
        if len(self.kept) < self._limit:
            self.kept.append(violation)
