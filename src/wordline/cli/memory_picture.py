"""The memory plan of an artifact as an SVG picture: DRAM rows by owner, scratch over the tasks of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wordline.cli.memory import grouped, memory_map, row_owners
from wordline.svg import box, text

if TYPE_CHECKING:
    from wordline.artifact import Artifact

WIDTH, BAND, LINE, MARGIN, SCRATCH = 1200, 60, 20, 20, 360
"""Pixels: width of the picture, height of the DRAM band, of a line of the legend, margin, height of the scratch map."""
COLOURS = ("#3465a4", "#cc6600", "#4e9a06", "#75507b", "#c4a000", "#a40000", "#06989a", "#8f5902", "#5c3566", "#2e3436")
KV, FREE = "#729fcf", "#eeeeec"


def memory_picture(artifact: Artifact) -> str:
    """One SVG document without scripts or links; every shape says in its title what it is."""
    inner = WIDTH - 2 * MARGIN
    rows = artifact.machine.organisation.rows
    groups = grouped(row_owners(artifact))
    shapes = [text(MARGIN, 16, f"{artifact.manifest.model.name} on {artifact.machine.name}: DRAM rows 0 to {rows - 1}")]
    legend = []

    def band(first: int, count: int, colour: str, name: str) -> None:
        x, width = MARGIN + first * inner / rows, count * inner / rows
        shapes.append(box(x, 26, width, BAND, colour, f"{name}: rows {first} to {first + count - 1}"))

    for region in memory_map(artifact):
        if region["region"] != "weights":
            colour = KV if region["region"].startswith("KV") else FREE
            band(region["first_row"], region["rows"], colour, region["region"])
            legend.append((colour, f"{region['region']}: {region['rows']} rows"))
    for index, (name, owners) in enumerate(groups.items()):
        colour = COLOURS[index % len(COLOURS)]
        for owner in owners:
            band(owner.first_row, owner.rows, colour, owner.name)
        legend.append((colour, f"{name}: {sum(owner.rows for owner in owners)} rows"))
    y = 26 + BAND + 10
    for colour, line in legend:
        shapes += [box(MARGIN, y, 12, 12, colour, line), text(MARGIN + 20, y + 11, line)]
        y += LINE
    capacity = artifact.machine.scratch.bytes_per_channel
    scratch = artifact.manifest.memory.scratch
    tasks = max((buffer.last for buffer in scratch), default=0) + 1
    shapes.append(text(MARGIN, y + 16, f"scratch of a channel, 0 to {capacity:,} bytes up, over {tasks} tasks"))
    y += 26
    shapes.append(box(MARGIN, y, inner, SCRATCH, FREE, "free"))
    for index, b in enumerate(scratch):
        height = b.bytes * SCRATCH / capacity
        top = y + SCRATCH - (b.offset + b.bytes) * SCRATCH / capacity
        x, width = MARGIN + b.first * inner / tasks, (min(b.last + 1, tasks) - b.first) * inner / tasks
        what = f"{b.name}: {b.bytes:,} bytes at {b.offset:,}, tasks {b.first} to {b.last}"
        shapes.append(box(x, top, width, height, COLOURS[index % len(COLOURS)], what))
    height = y + SCRATCH + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        + "".join(shapes)
        + "</svg>\n"
    )
