"""Speed of the cycle models on traces: ``python -m benchmarks.timing_speed``.

Times the matrix-vector products of tests/reference/gddr6-aim/gemv_cycles.csv. A time is the wall time of one call in
this process, parsing included, the median of some; channel-cycles are cycles x channels addressed. The public
simulator's own rate follows from the CPU time in that table, which was taken on another computer. With ``--models``
also a decode step of Llama-2-7B, and what timing adds to decoding SmolLM2 with values; with ``--sweep`` all contexts of
the step. These are host times; they say nothing about the device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.support.gemv_traces import gemv_trace
from tests.support.reference import reference_rows
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.machines import load_machine
from wordline.sim.traces import PROFILES, TraceModel

MACHINE = "gddr6-aim-card"
CALLS = 20
LARGE = 10_000
"""Cycles from which on a product counts as large."""


@dataclass(frozen=True)
class Speed:
    """One product: its cycles and the seconds that one call takes, by profile; the public simulator's CPU seconds."""

    name: str
    channels: int
    cycles: dict[str, int]
    seconds: dict[str, float]
    published_cycles: int
    published_seconds: float

    def rate(self, profile: str) -> float:
        """Channel-cycles per second of wall time."""
        return self.cycles[profile] * self.channels / self.seconds[profile]

    @property
    def published_rate(self) -> float:
        """Channel-cycles per second of CPU time of the public simulator."""
        return self.published_cycles * self.channels / self.published_seconds


def measure(calls: int = CALLS, only: str = "") -> list[Speed]:
    """The products whose name contains ``only``."""
    machine = load_machine(MACHINE)
    models = {profile: TraceModel(machine, profile) for profile in PROFILES}
    results = []
    for row in reference_rows("gddr6-aim/gemv_cycles.csv"):
        channels = int(row["channels"])
        name = f"{row['out_rows']}x{row['in_cols']} {row['order']} {channels} ch"
        if only not in name:
            continue
        text = gemv_trace(int(row["out_rows"]), int(row["in_cols"]), channels, row["order"]).encode()
        cycles, seconds = {}, {}
        for profile, model in models.items():
            times = []
            for _ in range(calls):
                start = time.perf_counter()
                result = model.run(text)
                times.append(time.perf_counter() - start)
            cycles[profile], seconds[profile] = result.cycles, statistics.median(times)
        results.append(Speed(name, channels, cycles, seconds, int(row["total_cycles"]), float(row["cpu_s"])))
    return results


def measure_models(calls: int, sweep: bool) -> dict[str, Any]:
    """Seconds of a step of Llama-2-7B, and milliseconds of SmolLM2 with and without cycles, as plain data."""
    from benchmarks.timing_models import CONTEXT, MODEL, Step, combined_speed, step_speed

    with progress() as report:
        step = Step(report)
        report("timing steps")
        speed = step_speed(step, calls, sweep)
        report("decoding")
        combined = combined_speed(threads=2, turns=12, tokens=16, report=report)
    return {
        "step": {"model": MODEL, "context": CONTEXT, **asdict(speed)},
        "combined": None if combined is None else {**asdict(combined), "overhead": combined.overhead},
    }


def _model_table(models: dict[str, Any]) -> Any:
    step, combined = models["step"], models["combined"]
    name = f"{step['model']} at {step['context']}"
    rows = [
        [f"{name}, first time", f"{step['first']['wall'] * 1e3:.1f} ms", f"{step['first']['cpu'] * 1e3:.1f} ms"],
        [f"{name}, again", f"{step['again']['wall'] * 1e3:.1f} ms", f"{step['again']['cpu'] * 1e3:.1f} ms"],
    ]
    if step["contexts"] is not None:
        contexts = step["contexts"]
        rows.append([f"all contexts up to {step['context']}", f"{contexts['wall']:.1f} s", f"{contexts['cpu']:.1f} s"])
    if combined is not None:
        for what, key in (("values and cycles", "both"), ("values only", "values")):
            rows.append(
                [f"SmolLM2, a token, {what}", f"{combined[key + '_ms']:.2f} ms", f"{combined[key + '_cpu_ms']:.2f} ms"]
            )
        rows.append(
            ["cycles add", f"{combined['both_ms'] / combined['values_ms'] - 1:.1%}", f"{combined['overhead']:.1%}"]
        )
    return table("timing of whole models, host time", ["", "wall", "CPU"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 if a schedule is not the published one, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timing_speed", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="products whose name contains TEXT")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls, of which the median counts (%(default)s)")
    parser.add_argument("--models", action="store_true", help="also time whole models")
    parser.add_argument("--sweep", action="store_true", help="also time the step of the model at each of its contexts")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(arguments)
    speeds = measure(max(1, args.calls), args.only)
    if not speeds:
        parser.error(f"no product contains {args.only!r}")
    models = measure_models(max(1, args.calls), args.sweep) if args.models or args.sweep else None
    wrong = [s.name for s in speeds if s.cycles["aim-simulator"] != s.published_cycles]
    if args.json:
        print_json(
            {
                "machine": MACHINE,
                "products": [
                    {
                        "name": s.name,
                        "channels": s.channels,
                        "cycles": s.cycles,
                        "seconds": s.seconds,
                        "channel_cycles_per_second": {profile: s.rate(profile) for profile in PROFILES},
                        "published_channel_cycles_per_cpu_second": s.published_rate,
                    }
                    for s in speeds
                ],
                "models": models,
                "load_average": os.getloadavg()[0],
            }
        )
    else:
        columns = [
            "product",
            "cycles",
            *(f"{profile}, Gcc/s" for profile in PROFILES),
            "us",
            "published, Mcc/s",
            "times",
        ]
        rows = [
            [
                s.name,
                f"{s.published_cycles:,}",
                *(f"{s.rate(profile) / 1e9:.2f}" for profile in PROFILES),
                f"{s.seconds['aim-simulator'] * 1e6:.0f}",
                f"{s.published_rate / 1e6:.1f}",
                f"{s.rate('aim-simulator') / s.published_rate:,.0f}",
            ]
            for s in speeds
        ]
        large = [s.rate("aim-simulator") for s in speeds if s.published_cycles >= LARGE and s.channels > 1]
        summary = [f"slowest large product on many channels: {min(large) / 1e9:.1f} Gcc/s"] if large else []
        tables = [table("channel-cycles per second (cc/s) of one thread", columns, rows), "", *summary]
        if models is not None:
            tables += ["", _model_table(models)]
        print_tables(*tables, f"load average {os.getloadavg()[0]:.1f}")
    if wrong:
        print(f"not the published cycles: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
