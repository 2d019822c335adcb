"""Where a matrix runs: in the blocks, or on the host, which then reads it over the external bus.

Both costs are complete: blocks leave partial sums that a host-call adds up, and the host pays its round trip once. The
kernel is timed exactly; the host's constants are the machine's.
"""

from __future__ import annotations

from wordline.compiler.codegen import GeneratedProgram, generate
from wordline.compiler.dispatch import Candidate, CostTerm, Decision
from wordline.compiler.kernel.ir import Address, Task
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernels.hbm2_pim.gemv import GemvPlan, gemv, plan_gemv
from wordline.compiler.kernels.hbm2_pim.state import ChannelState
from wordline.compiler.memory import plan_scratch
from wordline.compiler.synchronise import synchronise
from wordline.isa import instruction_set
from wordline.isa.declare import Engine
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Host, Timing
from wordline.sim.hbm2_pim.timing import time_program

#: The fields of the machine that decide each cause of the kernel's time.
CONSTANTS = {
    "mac": ("MAC", "timing.nCCDL, pim.lanes"),
    "row_turn": ("row turns", "timing.nRTPL, nWR, nRP, nRCDRD, nRCDWR"),
    "refresh": ("refresh", "timing.nRFC, nREFI"),
    "fill": ("register writes", "timing.nCCDL, nCL, nCWL, nWTRL"),
    "mode": ("mode switches", "timing.nMOD, nRAS"),
    "column_access": ("read-out", "timing.nCCDS, nCL"),
    "issue": ("issue slots", "one instruction a cycle"),
}


def dispatch_gemv(machine: Machine, op: str, m: int, k: int) -> Decision:
    """y[m] = W[m, k] x of the operation ``op``: both candidates with their costs, the cheaper one chosen.

    Raises:
        WordlineError: as :func:`plan_gemv`.
    """
    candidates = (Candidate("banks", _bank_terms(machine, plan_gemv(machine, m, k))), _host(machine, m, k))
    return Decision(op, "linear", min(candidates, key=lambda candidate: candidate.cost_ns), candidates)


def generate_gemv(machine: Machine, plan: GemvPlan) -> GeneratedProgram:
    """The kernel alone, from single-bank mode and back."""
    x, y = ScratchBuffer("x", plan.input_bytes), ScratchBuffer("y", plan.result_bytes)
    early, body = gemv(plan, ChannelState(), Address(x), Address(y))
    tasks = [Task(Engine.CHANNEL, "gemv", "gemv", "gemv", "", body, (x,), (y,), early)]
    scratch = plan_scratch(machine, tasks, [x])
    return generate(machine, instruction_set(machine.generation), tasks, scratch, synchronise(tasks, scratch))


def stream_ns(machine: Machine, size: int) -> float:
    """The host reads or writes ``size`` bytes that are spread evenly over the pseudo-channels, refresh included."""
    host, timing = machine.section("host", Host), machine.section("timing", Timing)
    available = 1 - timing.nRFC / timing.nREFI if machine.refresh.enabled else 1.0
    return size / (machine.organisation.channels * host.channel_gb_per_s) / available


def _bank_terms(machine: Machine, plan: GemvPlan) -> tuple[CostTerm, ...]:
    host, tck = machine.section("host", Host), machine.clock.tck_ns
    causes = time_program(machine, generate_gemv(machine, plan).program).causes
    terms = [CostTerm(*_named(cause, cycles * tck)) for cause, cycles in causes.items() if cycles]
    additions = plan.m * (plan.input_groups - 1)
    return (
        *terms,
        CostTerm("call", host.call_latency_ns, "host.call_latency_ns"),
        CostTerm("partial sums", additions / host.gflop_per_s, "host.gflop_per_s"),
    )


def _named(cause: str, ns: float) -> tuple[str, float, str]:
    name, constants = CONSTANTS[cause]
    return name, ns, constants


def _host(machine: Machine, m: int, k: int) -> Candidate:
    """The host multiplies while it reads: the slower of the two counts."""
    host = machine.section("host", Host)
    stream = CostTerm("stream", stream_ns(machine, 2 * m * k), "host.channel_gb_per_s, organisation.channels")
    arithmetic = CostTerm("arithmetic", 2 * m * k / host.gflop_per_s, "host.gflop_per_s")
    call = CostTerm("call", host.call_latency_ns, "host.call_latency_ns")
    return Candidate("host", (call, max(stream, arithmetic, key=lambda term: term.ns)))
