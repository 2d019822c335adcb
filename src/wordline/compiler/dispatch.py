"""Which engine runs an operation: banks, vector unit or host, by modelled cost.

Costs are first-order, in nanoseconds, from the constants of the machine; every candidate is kept, with the reason
when it is excluded, so that the choice can be explained. The schedule is timed exactly elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.compiler.layout import ceil_div
from wordline.errors import WordlineError
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run an operation; ``excluded`` says why it cannot be chosen (None: it can)."""

    engine: str
    cost_ns: float
    excluded: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The engine chosen for the operation ``op`` and all candidates."""

    op: str
    kind: str
    engine: str
    candidates: tuple[Candidate, ...]


def _choose(op: str, kind: str, candidates: Sequence[Candidate]) -> Decision:
    legal = [c for c in candidates if c.excluded is None]
    if not legal:
        reasons = "; ".join(f"{c.engine}: {c.excluded}" for c in candidates)
        raise WordlineError(
            "no-engine", f"no engine of this machine runs {op} ({kind})", where=op, remedy=f"candidates were {reasons}"
        )
    best = min(legal, key=lambda c: c.cost_ns)
    return Decision(op, kind, best.engine, tuple(candidates))


def _host(machine: Machine, moved: float, streamed: float) -> Candidate:
    """Host path: activations over the link and back, operands streamed from host memory."""
    link = machine.link.lanes * machine.link.gb_per_s_per_lane
    cost = (
        2 * machine.link.latency_ns
        + machine.host.call_latency_ns
        + moved / link
        + streamed / machine.host.stream_gb_per_s
    )
    return Candidate("host", cost, "code generation for host calls is not part of this version")


def dispatch_linear(machine: Machine, op: str, outputs: int, k: int) -> Decision:
    """y [outputs] = W x, W bf16."""
    o, t, tck = machine.organisation, machine.timing, machine.clock.tck_ns
    local_rows = ceil_div(outputs, o.channels * o.banks)
    columns = local_rows * ceil_div(k, machine.bank_unit.lanes)
    turns = ceil_div(columns, o.columns)
    turn = t.nRTP + t.nRP + t.nRCDRDMAC
    visits = ceil_div(local_rows, machine.bank_unit.accumulators) * ceil_div(
        columns // max(local_rows, 1), machine.buffer.columns
    )
    banks = columns * t.nCCDS + turns * turn + visits * 2 * (t.nMODCH + machine.buffer.columns)
    # On the vector unit every weight passes the read port once, after a column read from one bank at a time in each
    # channel.
    elements = outputs * ceil_div(k, machine.vector_unit.lanes) * machine.vector_unit.lanes
    vector = elements / machine.vector_unit.lanes + outputs
    return _choose(
        op,
        "linear",
        (
            Candidate("banks", banks * tck),
            Candidate(
                "vector",
                vector * tck,
                f"weights of {outputs * k * 2} bytes do not pass through scratch in this version",
            ),
            _host(machine, (outputs + k) * 4, outputs * k * 2),
        ),
    )


def dispatch_region(machine: Machine, op: str, cycles: int, elements: int) -> Decision:
    """An element-wise or reduction region whose passes take ``cycles`` and whose inputs and outputs have ``elements``
    elements together.
    """
    present = machine.vector_unit.present
    vector = Candidate(
        "vector", cycles * machine.clock.tck_ns, None if present else "this machine has no near-memory vector unit"
    )
    return _choose(
        op,
        "vector",
        (
            Candidate("banks", float("inf"), "bank units multiply and accumulate only"),
            vector,
            _host(machine, elements * 4, 0),
        ),
    )
