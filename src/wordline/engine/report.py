"""The report after a run: device time against the physical limits, where it went, and host time apart.

Device time is simulated cycles; host time is measured seconds. The two are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.artifact import Artifact, Range
from wordline.engine.generate import Generation
from wordline.engine.session import ENTRY
from wordline.runtime import Device
from wordline.sim.energy import EnergyModel, EnergyTotals, activity_of
from wordline.sim.limits import decode_limits
from wordline.sim.shapes import ModelShape
from wordline.sim.timing import convert_result

OUTSIDE = "start and end"
"""The kind of cycles that belong to no instruction: waiting for the slowest channel, refresh left to do."""
CAUSE_NAMES = {
    "mac": "multiply-accumulate",
    "row_turn": "row turns",
    "refresh": "refresh",
    "fill": "buffer fill",
    "readout": "read-out",
    "column_access": "column access",
    "vector": "vector unit",
    "link": "host link",
    "wait": "waiting for channels",
    "issue": "instruction issue",
    "tail": "end of step",
}


@dataclass(frozen=True)
class KindTime:
    """One kind of operation in the last step, in ns of device time.

    ``channel_ns`` is the time of the channels (mean over them), split by cause; these add up to the step.
    ``vector_ns`` is the time that the vector unit was busy, most of it in parallel with other kinds' channel time.
    """

    kind: str
    channel_ns: float
    vector_ns: float
    causes_ns: dict[str, float]


@dataclass(frozen=True)
class DeviceTime:
    """Simulated time. Limits, splits and energy belong to the last step, which attended over ``context`` tokens."""

    tck_ns: float
    prompt_ns: float
    mean_step_ns: float
    last_step_ns: float
    context: int
    l0_ns: float
    l2_ns: float
    percent_of_l0: float
    percent_of_l2: float
    causes_ns: dict[str, float]
    kinds: tuple[KindTime, ...]
    joules_per_token: float
    energy: EnergyTotals


@dataclass(frozen=True)
class HostTime:
    """Measured time of this process, simulation included."""

    prompt_s: float
    decode_s: float
    sampling_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class Report:
    """What a run did and took; ``device_time`` is None when no cycles were counted."""

    model: str
    device: str
    machine_hash: str
    values_computed: bool
    prompt_tokens: int
    tokens: int
    stop: str
    device_time: DeviceTime | None
    host_time: HostTime

    def text(self) -> str:
        """The report for people."""
        values = "" if self.values_computed else ", no values computed"
        lines = [
            f"{self.model} on {self.device} (machine {self.machine_hash[:12]}{values})",
            f"  {self.prompt_tokens} prompt tokens, {self.tokens} generated, ended by {self.stop}",
        ]
        if self.device_time is not None:
            lines += _device_lines(self.device_time)
        host = self.host_time
        lines.append(
            f"host time, measured: prompt {host.prompt_s:.2f} s, generation {host.decode_s:.2f} s "
            f"({host.tokens_per_s:.1f} tokens/s of simulation), sampling {1e3 * host.sampling_s:.1f} ms"
        )
        return "\n".join(lines)


def make_report(artifact: Artifact, device: Device, run: Generation) -> Report:
    """The report of ``run``, which was the last work on ``device``."""
    seconds = run.decode_seconds + run.sampling_seconds
    model = artifact.manifest.model
    profile = device.profile() if any(run.decode_cycles) else None
    return Report(
        model=model.name,
        device=str(device),
        machine_hash=device.machine.hash,
        values_computed=device.functional,
        prompt_tokens=len(run.prompt),
        tokens=len(run.tokens),
        stop=run.stop,
        device_time=None if profile is None else _device_time(artifact, run, profile),
        host_time=HostTime(
            run.prompt_seconds,
            run.decode_seconds,
            run.sampling_seconds,
            len(run.tokens) / seconds if seconds else 0.0,
        ),
    )


def _device_time(artifact: Artifact, run: Generation, profile: Any) -> DeviceTime:
    machine, model = artifact.machine, artifact.manifest.model
    tck = machine.clock.tck_ns
    context = run.position
    limits = decode_limits(machine, ModelShape(name=model.name, **model.shape), 1, context)
    last = run.decode_cycles[-1] * tck
    causes = _named(np.asarray(profile.causes).mean(axis=0) * tck)
    energies = EnergyModel(machine)
    energy = energies.totals(energies.ledger(activity_of(convert_result(profile, tck), machine)), last)
    return DeviceTime(
        tck_ns=tck,
        prompt_ns=sum(run.prompt_cycles) * tck,
        mean_step_ns=sum(run.decode_cycles) / len(run.decode_cycles) * tck,
        last_step_ns=last,
        context=context,
        l0_ns=limits.l0,
        l2_ns=limits.l2,
        percent_of_l0=100 * limits.l0 / last,
        percent_of_l2=100 * limits.l2 / last,
        causes_ns=causes,
        kinds=tuple(split_by_kind(artifact.manifest.entries[ENTRY].provenance, profile, tck)),
        joules_per_token=energy.joules,
        energy=energy,
    )


def split_by_kind(provenance: Iterable[Range], profile: Any, tck_ns: float) -> list[KindTime]:
    """Device time of one submission by kind of operation, longest first; the channel times add up to the submission.

    ``profile`` is a simulator's timing result: ``causes`` [channels, causes], and of each stream ``causes``
    [instructions, causes] (summed over channels) or ``busy`` [instructions].
    """
    total = np.asarray(profile.causes, dtype=np.float64)
    channels = total.shape[0]
    by_kind: dict[str, npt.NDArray[np.float64]] = {}
    vector: dict[str, float] = {}
    tables = [
        (np.asarray(s.causes, dtype=np.float64).reshape(-1, total.shape[1]), np.asarray(s.busy, dtype=np.float64))
        for s in profile.streams
    ]
    for part in provenance:
        table, busy = tables[part.stream]
        by_kind.setdefault(part.kind, np.zeros(total.shape[1]))
        if table.size:
            by_kind[part.kind] += table[part.first : part.last + 1].sum(axis=0) / channels
        if busy.size:
            vector[part.kind] = vector.get(part.kind, 0.0) + float(busy[part.first : part.last + 1].sum())
    by_kind[OUTSIDE] = total.mean(axis=0) - sum(by_kind.values(), np.zeros(total.shape[1]))
    kinds = [
        KindTime(kind, float(c.sum()) * tck_ns, vector.get(kind, 0.0) * tck_ns, _named(c * tck_ns))
        for kind, c in by_kind.items()
    ]
    return sorted(kinds, key=lambda k: -k.channel_ns)


def _named(values: npt.NDArray[np.float64]) -> dict[str, float]:
    from wordline import _native

    return {name: float(value) for name, value in zip(_native.CAUSES, values, strict=True)}


def _device_lines(time: DeviceTime) -> list[str]:
    step = time.last_step_ns
    lines = [
        f"device time, simulated: {time.mean_step_ns / 1e6:.4f} ms a token "
        f"({1e9 / time.mean_step_ns:.1f} tokens/s)"
        + (f", prompt {time.prompt_ns / 1e6:.3f} ms" if time.prompt_ns else ""),
        f"  at context {time.context}: {step / 1e6:.4f} ms; "
        f"{time.percent_of_l0:.1f} % of L0 ({time.l0_ns / 1e6:.4f} ms: every multiply-accumulate slot used), "
        f"{time.percent_of_l2:.1f} % of L2 ({time.l2_ns / 1e6:.4f} ms: with row turns and refresh)",
        "  by cause (channels):",
    ]
    rows = [(CAUSE_NAMES.get(name, name), ns) for name, ns in time.causes_ns.items() if ns]
    width = max((len(name) for name, _ in rows), default=0)
    lines += [f"    {name:<{width}} {100 * ns / step:5.1f} %" for name, ns in sorted(rows, key=lambda row: -row[1])]
    lines.append("  by kind of operation (channel time; time the vector unit was busy; main causes):")
    width = max((len(kind.kind) for kind in time.kinds), default=0)
    lines += [
        f"    {kind.kind:<{width}} {100 * kind.channel_ns / step:5.1f} %  {100 * kind.vector_ns / step:5.1f} %  "
        f"{main_causes(kind.causes_ns, step)}"
        for kind in time.kinds
        if kind.channel_ns + kind.vector_ns >= step / 2000  # what shows as 0.0 %
    ]
    lines.append(
        f"energy, modelled: {1e3 * time.energy.joules:.4f} mJ a token at context {time.context} "
        f"({time.energy.watts:.2f} W); constants: wordline energy"
    )
    rows_of_energy = energy_rows(time.energy)
    width = max(len(row[0]) for row in rows_of_energy)
    lines += [f"    {kind:<{width}} {share:>7}  {mj} mJ" for kind, mj, share in rows_of_energy]
    return lines


def energy_rows(energy: EnergyTotals) -> list[tuple[str, str, str]]:
    """(kind, mJ, share) of what energy is spent on, largest first, as text; what shows as 0.0 % is left out."""
    return [
        (kind, f"{1e3 * joules:.4f}", f"{100 * joules / energy.joules:.1f} %")
        for kind, joules in sorted(energy.kinds_j.items(), key=lambda item: -item[1])
        if joules >= energy.joules / 2000
    ]


def main_causes(causes: Mapping[str, float], step: float) -> str:
    """The three largest ``causes`` in percent of ``step``, in words."""
    largest = sorted(causes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(
        f"{CAUSE_NAMES.get(name, name)} {100 * ns / step:.1f} %" for name, ns in largest if ns > step / 2000
    )
