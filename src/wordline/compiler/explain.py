"""Why each operation runs where it does, and what bounds it there: dispatch beside the timed program."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wordline.artifact.names import starred
from wordline.compiler.compiled import Compiled, Kept
from wordline.compiler.dispatch import Candidate, Decision
from wordline.errors import WordlineError
from wordline.isa.declare import Engine
from wordline.sim.timing import CAUSES, Span, TimingResult

DECIDED_BY: Mapping[str, str] = {
    "mac": "timing.nCCDL, bank_unit.lanes",
    "row_turn": "timing.nRTP, nRP, nRCDRDMAC, organisation.columns",
    "refresh": "timing.nREFI, nRFC, refresh.postpone, refresh.pull_in",
    "fill": "timing.nMODCH, nCCDS, buffer.columns",
    "readout": "timing.nMODCH, nRDMAC_latency, bank_unit.accumulators",
    "column_access": "timing.nRCDRD, nCCDL, scratch.landing_cycles",
    "vector": "vector_unit: lanes, latency, pass_overhead",
    "link": "link.lanes, gb_per_s_per_lane, latency_ns",
    "wait": "the slowest channel",
    "issue": "one instruction a cycle",
    "tail": "the slowest channel",
}
"""The fields of the machine, or the rule, behind each cause of the cycle model."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A part of an operation's time in the timed program, and which fields of the machine or rule decide it."""

    cause: str
    ns: float
    constants: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One operation, or the same one of ``count`` layers: costs are those of one, times those of all together.

    Attributes:
        op: label; numbers of layers are ``*``.
        ops: the labels themselves.
        count: operations that share this explanation.
        kind: of operation.
        winner: the candidate chosen, one of ``candidates``.
        shared_with: other operations that the same task computes; times are those of the task.
        candidates: with cost terms and reasons.
        runner_up: the next best, None if no other has a cost.
        margin: cost of the next best divided by that of the winner, None without one.
        channel_ns: time of the channels (mean) charged to it in the timed step.
        vector_ns: time for which it keeps the vector unit busy.
        waited_ns: time for which channels waited for the vector unit or the link on its account.
        bounds: its channel time by cause, longest first; of work that costs the channels nothing, the parts of its
            time on the vector unit.
        kept: what a search found for it; None without one, or if nothing is open.
    """

    op: str
    ops: tuple[str, ...]
    count: int
    kind: str
    winner: Candidate
    shared_with: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    runner_up: Candidate | None
    margin: float | None
    channel_ns: float
    vector_ns: float
    waited_ns: float
    bounds: tuple[Bound, ...]
    kept: Kept | None


def explain(compiled: Compiled, result: TimingResult, pattern: str | None = None) -> list[Explanation]:
    """Explanations in program order, layers together.

    Args:
        compiled: the program.
        result: its time at some context.
        pattern: only operations whose label has this in it, or matches it as a shell pattern.

    Raises:
        WordlineError: "unknown-op" with all labels, if no operation matches.
    """
    groups: dict[tuple[object, ...], list[Decision]] = {}
    for decision in compiled.decisions:
        if pattern is None or _matches(decision.op, pattern):
            groups.setdefault(_key(decision), []).append(decision)
    if not groups:
        labels = dict.fromkeys(starred(decision.op) for decision in compiled.decisions)
        raise WordlineError(
            "unknown-op",
            f"no operation of {compiled.graph.name} matches {pattern!r}",
            where=compiled.graph.name,
            remedy="operations are: " + ", ".join(labels),
        )
    times = _Times(compiled, result)
    sharers: dict[str, list[str]] = {}
    for decision in compiled.decisions:
        if decision.task is not None:
            sharers.setdefault(decision.task, []).append(decision.op)
    kept = {} if compiled.tuned is None else {op: k for k in compiled.tuned.kept for op in k.found.operations}
    return [_explanation(decisions, times, sharers, kept) for decisions in groups.values()]


def _matches(label: str, pattern: str) -> bool:
    return any(pattern in text or fnmatch.fnmatchcase(text, pattern) for text in (label, starred(label)))


def _key(decision: Decision) -> tuple[object, ...]:
    """Operations of different layers are alike if all they cost is."""
    return starred(decision.op), decision.kind, decision.winner, decision.candidates


class _Times:
    """Times of tasks, and of all tasks of an operation."""

    def __init__(self, compiled: Compiled, result: TimingResult) -> None:
        self._tck = result.tck_ns
        ranges, tasks = compiled.generated.provenance, compiled.generated.tasks
        by_task = result.split(Span(r.stream, r.first, r.last, task) for r, task in zip(ranges, tasks, strict=True))
        by_op = result.split(Span(r.stream, r.first, r.last, r.op) for r in ranges)
        self._task = {time.label: time for time in by_task}
        self._op = {time.label: time for time in by_op}

    def of(self, decisions: Sequence[Decision]) -> tuple[dict[str, float], float]:
        """Channel time by cause and busy time of the vector unit, in ns."""
        causes = dict.fromkeys(CAUSES, 0.0)
        busy = 0.0
        for decision in decisions:
            time = self._op.get(decision.op) if decision.task is None else self._task.get(decision.task)
            if time is not None:
                busy += time.vector_busy * self._tck
                for cause in CAUSES:
                    causes[cause] += time.causes[cause] * self._tck
        return causes, busy


def _explanation(
    decisions: list[Decision], times: _Times, sharers: Mapping[str, list[str]], kept: Mapping[str, Kept]
) -> Explanation:
    first = decisions[0]
    causes, busy = times.of(decisions)
    bounds = [Bound(cause, ns, DECIDED_BY[cause]) for cause, ns in causes.items() if ns > 0]
    if not bounds:
        bounds = [Bound(term.name, term.ns * len(decisions), term.constants) for term in first.winner.terms if term.ns]
    runner_up = first.runner_up
    cost = first.winner.cost_ns
    others = sharers.get(first.task, []) if first.task is not None else []
    return Explanation(
        starred(first.op),
        tuple(decision.op for decision in decisions),
        len(decisions),
        first.kind,
        first.winner,
        tuple(starred(op) for op in others if op != first.op),
        first.candidates,
        runner_up,
        None if runner_up is None or not cost else runner_up.cost_ns / cost,
        sum(causes.values()),
        busy,
        causes[Engine.VECTOR.name.lower()] + causes[Engine.LINK.name.lower()],
        tuple(sorted(bounds, key=lambda bound: -bound.ns)),
        kept.get(first.op),
    )
