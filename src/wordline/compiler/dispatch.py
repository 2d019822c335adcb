"""Which engine runs an operation: banks, vector unit or host, by modelled cost.

Costs are first-order, in nanoseconds, from the constants of the machine; every candidate is kept, with the reason
when it is excluded, so that the choice can be explained. The schedule is timed exactly elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.compiler.choices import GemvChoice, GemvShape, plain_gemv
from wordline.compiler.gemv_plan import GemvCost, gemv_cost, legal_parts
from wordline.compiler.integers import ceil_div
from wordline.compiler.layout import KVLayout
from wordline.compiler.vector.cost import PassCost
from wordline.errors import WordlineError
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class CostTerm:
    """A part of a cost in ns; ``constants`` are the fields of the machine that decide it."""

    name: str
    ns: float
    constants: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run an operation: what its cost is made of (no terms: it has none, the engine cannot do it at all).

    ``excluded`` says why it cannot be chosen (None: it can), ``rule`` which rule or limit that is. ``choice``: of a
    matrix in the banks; ``layout``: how it differs from the plain one.
    """

    engine: str
    terms: tuple[CostTerm, ...]
    excluded: str | None = None
    rule: str | None = None
    choice: GemvChoice | None = None
    layout: str = ""

    @property
    def name(self) -> str:
        """For people: the engine, and the layout if it is not the plain one."""
        return f"{self.engine}, {self.layout}" if self.layout else self.engine

    @property
    def cost_ns(self) -> float:
        """All terms together; infinite without any."""
        return sum(term.ns for term in self.terms) if self.terms else float("inf")


@dataclass(frozen=True, slots=True)
class Decision:
    """The candidate chosen for the operation ``op``, one of ``candidates``.

    ``task`` is the name of the task that does it, None if all tasks labelled ``op`` do.
    """

    op: str
    kind: str
    winner: Candidate
    candidates: tuple[Candidate, ...]
    task: str | None = None

    @property
    def engine(self) -> str:
        """Where the operation runs."""
        return self.winner.engine

    @property
    def runner_up(self) -> Candidate | None:
        """The cheapest of the others, preferably one that could have been chosen; None if no other has a cost."""
        others = [c for c in self.candidates if c is not self.winner and c.terms]
        return min(others, key=lambda c: (c.excluded is not None, c.cost_ns), default=None)


def _choose(op: str, kind: str, candidates: Sequence[Candidate], task: str | None) -> Decision:
    legal = [c for c in candidates if c.excluded is None]
    if not legal:
        reasons = "; ".join(f"{c.engine}: {c.excluded}" for c in candidates)
        raise WordlineError(
            "no-engine", f"no engine of this machine runs {op} ({kind})", where=op, remedy=f"candidates were {reasons}"
        )
    best = min(legal, key=lambda c: c.cost_ns)
    return Decision(op, kind, best, tuple(candidates), task)


NO_STREAMING = "weights, keys and values do not pass through scratch"
FEWEST_CYCLES = "fewest cycles of all matrices with this input"
SEARCHED = "fastest of all that were timed"
NO_ROOM = "the parts do not fit the scratch beside what else is live"
AS_READ_OUT = "logits go to the host as the banks read them out"
NO_HOST = "host calls are not generated"


def _host(machine: Machine, moved: float, streamed: float) -> Candidate:
    """Host path: activations over the link and back, operands streamed from host memory."""
    link = machine.link.lanes * machine.link.gb_per_s_per_lane
    call = 2 * machine.link.latency_ns + machine.host.call_latency_ns
    terms = (
        CostTerm("call", call, "link.latency_ns, host.call_latency_ns"),
        CostTerm("link", moved / link, "link.lanes, link.gb_per_s_per_lane"),
        CostTerm("stream", streamed / machine.host.stream_gb_per_s, "host.stream_gb_per_s"),
    )
    return Candidate("host", terms, "code generation for host calls is not part of this version", NO_HOST)


def _bank_terms(machine: Machine, macs: float, turns: float, visits: float, registers: float) -> tuple[CostTerm, ...]:
    """MACs, row turns, visits to register mode and register commands of one bank."""
    t, tck = machine.timing, machine.clock.tck_ns
    turn = t.nRTP + t.nRP + t.nRCDRDMAC - t.nCCDL
    return (
        CostTerm("MAC", macs * t.nCCDL * tck, "timing.nCCDL, bank_unit.lanes"),
        CostTerm("row turns", turns * turn * tck, "timing.nRTP, nRP, nRCDRDMAC, organisation.columns"),
        CostTerm(
            "register visits",
            (visits * 2 * t.nMODCH + registers * t.nCCDS) * tck,
            "timing.nMODCH, nCCDS, bank_unit.accumulators, buffer.columns",
        ),
    )


def _gemv_terms(machine: Machine, cost: GemvCost) -> tuple[CostTerm, ...]:
    tck = machine.clock.tck_ns
    return (
        CostTerm("MAC", cost.macs * tck, "timing.nCCDL, bank_unit.lanes"),
        CostTerm("row turns", cost.turns * tck, "timing.nRTP, nRP, nRCDRDMAC, organisation.columns"),
        CostTerm("register visits", cost.visits * tck, "timing.nMODCH, nCCDS, bank_unit.accumulators, buffer.columns"),
        CostTerm("partial sums", cost.additions * tck, "vector_unit.lanes, latency, pass_overhead"),
    )


def _vector_terms(machine: Machine, cost: PassCost) -> tuple[CostTerm, ...]:
    tck = machine.clock.tck_ns
    return (
        CostTerm("port", cost.port * tck, "vector_unit.lanes"),
        CostTerm("latency", cost.latency * tck, "vector_unit.latency"),
        CostTerm("overhead", cost.overhead * tck, "vector_unit.pass_overhead"),
    )


def dispatch_linear(
    machine: Machine, op: str, outputs: int, k: int, choice: GemvChoice, why: str, task: str | None = None
) -> Decision:
    """y [outputs] = W x, W bf16.

    ``choice``: how it is laid out, together with the matrices that share its input; ``why``: what decided that.
    """
    shape, plain = GemvShape((outputs,), k), plain_gemv(machine)
    banks = []
    for other in dict.fromkeys((*legal_parts(machine, shape), choice)):
        terms = _gemv_terms(machine, gemv_cost(machine, shape, other))
        reason = None if other == choice else f"laid out with {choice.beside(other)}"
        banks.append(Candidate("banks", terms, reason, reason and why, other, other.beside(plain)))
    # On the vector unit every weight passes the read port once, and every output is a pass of its own.
    lines = ceil_div(k, machine.vector_unit.lanes)
    vector = PassCost(2 * outputs * lines, 0, outputs * machine.vector_unit.pass_overhead)
    return _choose(
        op,
        "linear",
        (
            *banks,
            Candidate(
                "vector",
                _vector_terms(machine, vector),
                f"weights of {outputs * k * 2} bytes do not pass through scratch in this version",
                NO_STREAMING,
            ),
            _host(machine, (outputs + k) * 4, outputs * k * 2),
        ),
        task,
    )


def dispatch_attention(machine: Machine, op: str, kv: KVLayout, group: int, context: int) -> Decision:
    """Attention of one layer over ``context`` tokens, ``group`` query heads on each KV head."""
    elements = context * kv.kv_heads * kv.head_dim
    units = kv.channels * kv.banks
    columns = 2 * elements / (units * kv.lanes)
    pages = ceil_div(context, kv.page_tokens) * kv.kv_heads / kv.channels
    filled = pages * group * (kv.head_columns + kv.token_columns)
    read = pages * group * (kv.page_tokens + kv.head_dim) / kv.banks
    banks = _bank_terms(machine, columns * group, columns / kv.row_columns, 4 * pages, filled + read)
    scores = ceil_div(context, machine.vector_unit.lanes) * kv.kv_heads * group
    lines = 2 * ceil_div(elements * group, machine.vector_unit.lanes)
    vector = PassCost(2 * lines + 3 * scores, 0, 2 * kv.kv_heads * group * machine.vector_unit.pass_overhead)
    heads = kv.kv_heads * group * kv.head_dim
    return _choose(
        op,
        "attention",
        (
            Candidate("banks", banks),
            Candidate(
                "vector",
                _vector_terms(machine, vector),
                f"keys and values of {4 * elements} bytes do not pass through scratch in this version",
                NO_STREAMING,
            ),
            _host(machine, 8 * heads + 8 * kv.kv_heads * kv.head_dim, 4 * elements),
        ),
        None,
    )


def dispatch_embedding(machine: Machine, op: str, width: int) -> Decision:
    """One row of a table that lies in the banks."""
    columns = ceil_div(width, machine.bank_unit.lanes)
    banks = _bank_terms(machine, columns, ceil_div(columns, machine.organisation.columns) + 1, 0, 0)
    return _choose(
        op,
        "embedding",
        (
            Candidate("banks", banks),
            Candidate("vector", (), "the vector unit reaches scratch only", "the table lies in the banks"),
            _host(machine, width * 4, width * 2),
        ),
        None,
    )


def dispatch_region(machine: Machine, op: str, cost: PassCost, elements: int, task: str | None = None) -> Decision:
    """An element-wise or reduction region.

    ``cost`` is that of its passes; ``elements`` are those of its inputs and outputs together.
    """
    present = machine.vector_unit.present
    vector = Candidate(
        "vector",
        _vector_terms(machine, cost),
        None if present else "this machine has no near-memory vector unit",
        None if present else "vector_unit.present",
    )
    return _choose(
        op,
        "vector",
        (
            Candidate("banks", (), "bank units multiply and accumulate only", "bank units: MAC"),
            vector,
            _host(machine, elements * 4, 0),
        ),
        task,
    )
