"""The HTML page of ``wordline explain``: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wordline.compiler.explain import Explanation

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.won td { font-weight: 600; }
tr.out td { color: #777; }
summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
.bar { background: #eee; height: .7rem; display: flex; }
.bar span { display: block; height: 100%; }
"""
COLOURS = ("#3465a4", "#cc6600", "#8f5902", "#75507b", "#4e9a06", "#c4a000", "#a40000", "#555753")


def page(title: str, found: Sequence[Explanation], step_ns: float) -> str:
    """The page."""
    parts = "".join(_section(e, step_ns) for e in found)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{step_ns / 1e6:.4f} ms a token. Costs are modelled, of one operation; times are timed by the cycle model, "
        f"of the same operation of all layers.</p>{parts}</body></html>\n"
    )


def _section(e: Explanation, step_ns: float) -> str:
    share = 100 * e.channel_ns / step_ns
    shared = f"<p>One task with {escape(', '.join(e.shared_with))}.</p>" if e.shared_with else ""
    margin = ""
    if e.margin is not None and e.runner_up is not None:
        margin = f", {e.margin:.2f} times cheaper than {escape(e.runner_up.name)}"
    return (
        f"<details><summary>{escape(e.op)}: {escape(e.winner.name)} ({e.count}x, {share:.1f} % of the step)</summary>"
        f"<p>Chosen: {escape(e.winner.name)}{margin}.</p>{shared}{_candidates(e)}{_bounds(e)}</details>"
    )


def _candidates(e: Explanation) -> str:
    rows = []
    for c in e.candidates:
        won = c == e.winner
        reason = "chosen" if won else escape(c.excluded or "costs more")
        rule = f" ({escape(c.rule)})" if c.rule else ""
        terms = "<br>".join(f"{escape(t.name)} {t.ns:,.1f} ns: {escape(t.constants)}" for t in c.terms)
        cost = f"{c.cost_ns:,.1f}" if c.terms else "-"
        css = "won" if won else "out" if c.excluded else ""
        rows.append(_row([escape(c.name), reason + rule, terms], [cost], css))
    return _table(("engine", "verdict", "cost terms"), ("ns",), rows)


def _bounds(e: Explanation) -> str:
    total = sum(b.ns for b in e.bounds) or 1.0
    bar = "".join(
        f'<span style="width:{100 * b.ns / total:.2f}%;background:{COLOURS[i % len(COLOURS)]}" '
        f'title="{escape(b.cause)} {100 * b.ns / total:.1f} %"></span>'
        for i, b in enumerate(e.bounds)
    )
    rows = [
        _row([escape(b.cause), escape(b.constants)], [f"{b.ns / 1e3:,.3f}", f"{100 * b.ns / total:.1f}"])
        for b in e.bounds
    ]
    return f'<div class="bar">{bar}</div>' + _table(("bound by", "constants"), ("µs", "%"), rows)


def _table(texts: Iterable[str], numbers: Iterable[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{t}</th>" for t in texts) + "".join(f'<th class="n">{n}</th>' for n in numbers)
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _row(texts: Iterable[str], numbers: Iterable[str], css: str = "") -> str:
    cells = "".join(f"<td>{t}</td>" for t in texts) + "".join(f'<td class="n">{n}</td>' for n in numbers)
    return f'<tr class="{css}">{cells}</tr>'
