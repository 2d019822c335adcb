"""The memory plan of an artifact: owners of DRAM rows, scratch over time, and what each context takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wordline.cli.output import table

if TYPE_CHECKING:
    from wordline.artifact import Artifact, ScratchAllocation

MIB = 1 << 20
BAR = 40
"""Characters of the bars in the table."""


@dataclass(frozen=True, slots=True)
class RowOwner:
    """``rows`` DRAM rows from ``first_row``, in every bank, belong to ``name`` (matrices that share an input)."""

    name: str
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Scratch of a channel while task number ``task`` runs: live bytes, and the largest buffers."""

    task: int
    bytes: int
    largest: tuple[ScratchAllocation, ...]


def memory_map(artifact: Artifact) -> list[dict[str, Any]]:
    """Regions of DRAM, by rows (each in every bank of every channel)."""
    memory, kv, machine = artifact.manifest.memory, artifact.manifest.memory.kv, artifact.machine
    room = (machine.organisation.rows - kv.first_row) // kv.rows_per_page
    pages = min(kv.layers * (kv.kv_heads // kv.channel_groups) * kv.pages_per_channel, room)
    regions = [
        ("weights", 0, memory.weight_rows),
        ("unused", memory.weight_rows, kv.first_row),
        (f"KV pages of one session at {kv.max_context} tokens", kv.first_row, kv.first_row + pages * kv.rows_per_page),
        ("free", kv.first_row + pages * kv.rows_per_page, machine.organisation.rows),
    ]
    row = machine.organisation.device_row_bytes
    return [
        {"region": name, "first_row": first, "rows": end - first, "bytes": (end - first) * row}
        for name, first, end in regions
        if end > first
    ]


def row_owners(artifact: Artifact) -> list[RowOwner]:
    """Owners of the weight rows, in order; together they are all of them."""
    from wordline.artifact.names import PARAMETERS

    found: dict[int, tuple[list[str], int]] = {}
    vectors: list[tuple[int, int]] = []
    for weight in artifact.manifest.memory.weights:
        if weight.dtype == "f32":
            vectors.append((weight.first_row, weight.first_row + weight.rows))
        else:
            names, _ = found.setdefault(weight.first_row, ([], weight.rows))
            names.append(weight.name)
    owners = [RowOwner(" + ".join(names), first, rows) for first, (names, rows) in found.items()]
    if vectors:
        first = min(start for start, _ in vectors)
        owners.append(RowOwner(PARAMETERS, first, max(end for _, end in vectors) - first))
    return sorted(owners, key=lambda owner: owner.first_row)


def grouped(owners: Iterable[RowOwner]) -> dict[str, list[RowOwner]]:
    """The same matrices of all layers together."""
    from wordline.artifact.names import starred

    groups: dict[str, list[RowOwner]] = {}
    for owner in owners:
        groups.setdefault(starred(owner.name), []).append(owner)
    return groups


def fullest_moments(scratch: Iterable[ScratchAllocation], count: int) -> list[Moment]:
    """The ``count`` moments at which most bytes are live, fullest first, no two with the same live buffers."""
    buffers = list(scratch)
    moments = []
    for task in sorted({buffer.first for buffer in buffers}):
        live = [buffer for buffer in buffers if buffer.first <= task <= buffer.last]
        largest = tuple(sorted(live, key=lambda buffer: -buffer.bytes)[:3])
        moments.append(Moment(task, sum(buffer.bytes for buffer in live), largest))
    return sorted(moments, key=lambda moment: (-moment.bytes, moment.task))[:count]


def memory_document(artifact: Artifact) -> dict[str, Any]:
    """The memory plan as plain data."""
    memory = artifact.manifest.memory
    return {
        "path": str(artifact.path),
        "dram": memory_map(artifact),
        "owners": [dataclasses.asdict(owner) for owner in row_owners(artifact)],
        "scratch": [dataclasses.asdict(buffer) for buffer in memory.scratch],
        "scratch_bytes_per_channel": artifact.machine.scratch.bytes_per_channel,
        "envelope": [dataclasses.asdict(point) for point in memory.envelope],
    }


def memory_tables(artifact: Artifact) -> list[Any]:
    """The memory plan for people."""
    return [_rows(artifact), "", _scratch(artifact), "", _envelope(artifact)]


def _rows(artifact: Artifact) -> Any:
    row_bytes, total = artifact.machine.organisation.device_row_bytes, artifact.machine.organisation.rows
    rows = [
        [name, _bar([(o.first_row, o.rows) for o in owners], total), str(len(owners)), *_size(owners, row_bytes)]
        for name, owners in grouped(row_owners(artifact)).items()
    ]
    for region in memory_map(artifact):
        if region["region"] != "weights":
            span = (region["first_row"], region["rows"])
            rows.append(
                [region["region"], _bar([span], total), "", str(region["rows"]), f"{region['bytes'] / MIB:,.1f}"]
            )
    title = f"DRAM rows 0 to {total - 1}, in every bank"
    return table(title, ["owner", "where", "count", "rows", "MiB"], rows, left=2)


def _size(owners: list[RowOwner], row_bytes: int) -> tuple[str, str]:
    rows = sum(owner.rows for owner in owners)
    return str(rows), f"{rows * row_bytes / MIB:,.1f}"


def _bar(spans: Iterable[tuple[int, int]], total: int) -> str:
    """Which parts of the rows a set of spans touches."""
    cells = ["·"] * BAR
    for first, rows in spans:
        for cell in range(first * BAR // total, min(BAR, -(-(first + rows) * BAR // total))):
            cells[cell] = "█"
    return "".join(cells)


def _scratch(artifact: Artifact) -> Any:
    capacity = artifact.machine.scratch.bytes_per_channel
    rows = []
    for moment in fullest_moments(artifact.manifest.memory.scratch, 8):
        filled = moment.bytes * BAR // capacity
        largest = ", ".join(f"{buffer.name} {buffer.bytes:,}" for buffer in moment.largest)
        rows.append(["█" * filled + "·" * (BAR - filled), largest, str(moment.task), f"{moment.bytes:,}"])
    title = f"scratch, {capacity:,} bytes a channel: the fullest moments"
    return table(title, ["live", "largest", "task", "bytes"], rows, left=2)


def _envelope(artifact: Artifact) -> Any:
    rows = [
        [
            str(p.batch),
            str(p.context),
            f"{p.weight_bytes / MIB:,.1f}",
            f"{p.kv_bytes / MIB:,.1f}",
            str(p.kv_rows),
            f"{p.scratch_bytes:,}",
        ]
        for p in artifact.manifest.memory.envelope
    ]
    columns = ["batch", "context", "weights MiB", "KV MiB", "KV rows of the fullest channel", "scratch bytes a channel"]
    return table("memory by context", columns, rows, left=0)
