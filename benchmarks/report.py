"""The suite as an HTML page: percent of the limits, time by cause, roofline. One file, no scripts, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from math import log10

from benchmarks.suite import TITLES, Entry, machine_of
from wordline.sim.limits import peak_share
from wordline.sim.timing import CAUSES
from wordline.svg import box, text

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222; }
svg { display: block; margin: .5rem 0 1.5rem; }
svg text { font: 12px system-ui, sans-serif; fill: #222; }
svg .axis { stroke: #ccc; stroke-width: 1; }
.legend span { display: inline-block; margin-right: 1rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; vertical-align: -1px; }
"""
_PALETTE = [
    "#3465a4",
    "#cc6600",
    "#a40000",
    "#4e9a06",
    "#c4a000",
    "#8f5902",
    "#75507b",
    "#06989a",
    "#888a85",
    "#5c3566",
    "#d3d7cf",
]
COLOURS = dict(zip((*CAUSES, "mode"), (*_PALETTE, "#2e3436"), strict=True))
"""One colour a cause of the cycle models."""
LABEL, BAR, LINE, NUMBER = 210, 680, 22, 140
"""Pixels: width of the names, of the longest bar, height of a line, width of the figures behind the bars."""
PLOT_WIDTH, PLOT_HEIGHT, PLOT_MARGIN = 900, 360, 50


def page(entries: Sequence[Entry]) -> str:
    """The page of all ``entries``, in their order."""
    legend = "".join(f'<span><i style="background:{colour}"></i>{name}</span>' for name, colour in COLOURS.items())
    sections = []
    for (kind, machine), group in groupby(entries, lambda entry: (entry.case.kind, entry.case.machine)):
        rows = list(group)
        sections.append(
            f"<h2>{escape(TITLES[kind])}, {escape(machine)}</h2><h3>Percent of the limit</h3>{_limits(rows)}"
            f"<h3>Time by cause</h3>{_causes(rows)}"
        )
    machines = dict.fromkeys(entry.case.machine for entry in entries)
    roofs = "".join(
        f"<h3>{escape(name)}</h3>{_roofline([entry for entry in entries if entry.case.machine == name])}"
        for name in machines
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>wordline: cycle suite</title>'
        f"<style>{STYLE}</style></head><body><h1>Cycle suite</h1>"
        "<p>Device time, simulated and exact. A percentage is the time of the limit divided by the time taken.</p>"
        f'{"".join(sections)}<p class="legend">{legend}</p>'
        "<h2>Roofline</h2><p>MAC rate over the vectors that share an opened row: one for weights, the query heads of a "
        "KV head for attention. The line is L2: no program is above it unless refresh hides under waits.</p>"
        f"{roofs}</body></html>\n"
    )


def _limits(entries: Sequence[Entry]) -> str:
    """A bar for each entry: its tightest limit over its time; a mark at 100 %."""
    shapes = []
    for index, entry in enumerate(entries):
        name = list(entry.limits_ns)[-1]
        share = entry.percent(name) or 0.0
        y = index * LINE
        shapes.append(text(0, y + 15, entry.case.what))
        shapes.append(box(LABEL, y + 3, BAR, LINE - 6, "#eee", "100 %"))
        shapes.append(box(LABEL, y + 3, BAR * min(share, 100) / 100, LINE - 6, "#3465a4", f"{share:.1f} % of {name}"))
        shapes.append(text(LABEL + BAR + 10, y + 15, f"{share:.1f} % of {name}"))
    return _svg(LABEL + BAR + NUMBER, len(entries) * LINE, shapes)


def _causes(entries: Sequence[Entry]) -> str:
    """A bar for each entry, all of the same length, in the parts that took its cycles."""
    shapes = []
    for index, entry in enumerate(entries):
        x, y = float(LABEL), index * LINE
        shapes.append(text(0, y + 15, entry.case.what))
        # The refresh charge at the end may be a credit, which leaves nothing to draw.
        total = sum(max(cycles, 0.0) for cycles in entry.causes.values())
        for cause, cycles in entry.causes.items():
            width = BAR * max(cycles, 0.0) / total
            shapes.append(box(x, y + 3, width, LINE - 6, COLOURS[cause], f"{cause}: {100 * cycles / total:.1f} %"))
            x += width
        shapes.append(text(LABEL + BAR + 10, y + 15, f"{entry.ns / 1e3:,.2f} µs"))
    return _svg(LABEL + BAR + NUMBER, len(entries) * LINE, shapes)


def _roofline(entries: Sequence[Entry]) -> str:
    """Share of the MAC peak over vectors a row, the latter on a logarithmic axis from 1 to 32."""
    machine = machine_of(entries[0].case.machine)
    width, height = PLOT_WIDTH - 2 * PLOT_MARGIN, PLOT_HEIGHT - 2 * PLOT_MARGIN
    most = 32

    def place(vectors: float, share: float) -> tuple[float, float]:
        return PLOT_MARGIN + width * log10(vectors) / log10(most), PLOT_MARGIN + height * (1 - share)

    shapes = []
    for tenth in range(0, 11, 2):
        _, y = place(1, tenth / 10)
        shapes.append(f'<line class="axis" x1="{PLOT_MARGIN}" x2="{PLOT_MARGIN + width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(text(5, y + 4, f"{10 * tenth} %"))
    for vectors in (1, 2, 4, 8, 16, 32):
        x, y = place(vectors, 0)
        shapes.append(text(x - 4, y + 18, str(vectors)))
    steps = [most ** (i / 64) for i in range(65)]
    points = " ".join("{:.1f},{:.1f}".format(*place(v, peak_share(machine, v))) for v in steps)
    shapes.append(f'<polyline points="{points}" fill="none" stroke="#a40000" stroke-width="2"/>')
    for entry in entries:
        x, y = place(entry.case.vectors, (entry.percent("L0") or 0.0) / 100)
        title = f"{TITLES[entry.case.kind]}, {entry.case.what}: {entry.percent('L0'):.1f} % of the MAC peak"
        shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#3465a4" fill-opacity=".6">'
            f"<title>{escape(title)}</title></circle>"
        )
    return _svg(PLOT_WIDTH, PLOT_HEIGHT, shapes)


def _svg(width: float, height: float, shapes: Iterable[str]) -> str:
    return (
        f'<svg width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">{"".join(shapes)}</svg>'
    )
