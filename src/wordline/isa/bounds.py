"""Range checks of a command's operands against a machine: at run time before execution, ahead of time for constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wordline.isa import instruction_set
from wordline.isa.declare import AffineWord, Instruction, OperandError
from wordline.machines import Machine

ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that operands are checked against.

    ``items`` has by kind its name, whether it covers the burst, and how many there are.
    """

    column_bytes: int
    scratch_bytes: int
    controller_words: int
    items: Mapping[str, tuple[str, bool, int]]

    @classmethod
    def of(cls, machine: Machine) -> Bounds:
        organisation = machine.organisation
        items = {
            "bank": ("bank", False, organisation.banks),
            "row": ("row", False, organisation.rows),
            "column": ("column", True, organisation.columns),
        }
        for kind, own in instruction_set(machine.generation).kinds.items():
            items[kind] = (own.name, own.burst, own.limit(machine))
        return cls(
            organisation.column_bytes,
            machine.scratch.bytes_per_channel,
            machine.command_processor.controller_memory_bytes // 4,
            items,
        )

    def check(self, declaration: Instruction, values: Mapping[str, int]) -> None:
        """Check the operands and header fields in ``values`` (those that are missing are not known yet).

        Raises ``OperandError`` for the first that is out of range. A burst of no columns is never out of range; when
        the burst length is not known, what depends on it is not checked.
        """
        count = 1
        if any(word.name == "count" for word in declaration.words):
            if values.get("count", 0) <= 0:
                return
            count = values["count"]
        for word in declaration.words:
            if isinstance(word, AffineWord) and word.name in values:
                self._check(word.kind, values[word.name], count, values)

    def _check(self, kind: str, value: int, count: int, values: Mapping[str, int]) -> None:
        if kind in self.items:
            name, burst, limit = self.items[kind]
            check_range(name, value, count if burst else 1, limit)
            return
        match kind:
            case "scratch":
                columns = count if values.get("advance", 1) else 1
                self._check_scratch(value, columns * self.column_bytes, self.column_bytes)
            case "element":
                self._check_scratch(value, ELEMENT_BYTES, ELEMENT_BYTES)
            case "word" | "argument":  # an argument's address is checked again once its base is added
                check_range("controller memory word", value, 1, self.controller_words)

    def _check_scratch(self, offset: int, size: int, alignment: int) -> None:
        check_range("scratch offset", offset, size, self.scratch_bytes)
        if offset % alignment:
            raise OperandError(f"scratch offset {offset} is not a multiple of {alignment}")


def check_range(what: str, first: int, count: int, limit: int) -> None:
    """Raise ``OperandError`` unless first .. first + count - 1 (count >= 1) lies in 0 .. limit - 1."""
    if first < 0 or first + count > limit:
        value = first if first < 0 else first + count - 1
        raise OperandError(f"{what} {value} is outside 0..{limit - 1}")
