"""Tasks without what makes them fast: the same work, left to the order and the defaults of the machine."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from wordline.compiler.kernel.ir import Command, Item, Loop, Task
from wordline.compiler.optimisations import Optimisations

ROW_COMMANDS = frozenset({"PREA", "ACT16", "REF"})
"""Without them the machine opens rows when a command needs them, and refreshes when it must."""


def simplified(tasks: Sequence[Task], optimisations: Optimisations) -> list[Task]:
    """``tasks`` without early prologues, rows opened ahead or placed refreshes, as ``optimisations`` says."""
    dropped: frozenset[str] = frozenset()
    if not optimisations.rows_opened_ahead:
        dropped = ROW_COMMANDS
    elif not optimisations.refresh_placed:
        dropped = frozenset({"REF"})
    found = list(tasks)
    if dropped:
        found = [
            replace(task, prologue=_without(task.prologue, dropped), body=_without(task.body, dropped))
            for task in found
        ]
    if not optimisations.early_prologues:
        found = [replace(task, prologue=(), body=task.prologue + task.body) for task in found]
    return found


def _without(items: Sequence[Item], names: Container[str]) -> tuple[Item, ...]:
    return tuple(_kept(items, names))


def _kept(items: Sequence[Item], names: Container[str]) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Loop):
            body = _without(item.body, names)
            if body:
                yield replace(item, body=body)
        elif not (isinstance(item, Command) and item.name in names):
            yield item
