"""``python -m benchmarks.exported_traces``: programs of ours as traces, timed by profile ``aim-simulator``, beside the
totals that the public AiM simulator printed for the same traces (tests/reference/exported_traces.csv).

A total belongs to a trace, which its hash names: after a change of the compiler, ``--repository`` runs the public
simulator again and writes the table.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.programs import Benchmark, attention_program, decode_program, gemv_program
from benchmarks.suite import CARD, CHIP, EIGHT, machine_of
from wordline.cli.output import print_tables, table
from wordline.files import write_text
from wordline.sim.shapes import known_shapes
from wordline.sim.trace_export import export_program
from wordline.sim.traces import TraceModel

TABLE = Path(__file__).resolve().parent.parent / "tests" / "reference" / "exported_traces.csv"
SOURCE = (
    "# source: total cycles (memory_system_cycles) printed by aim_simulator, github.com/arkhadem/aim_simulator, commit "
    "0f28a07 (MIT), with its test/example.yaml, for programs of ours as exported; written by "
    "python -m benchmarks.exported_traces --repository FOLDER\n"
)
REMEDY = (
    "build github.com/arkhadem/aim_simulator at commit 0f28a07 in FOLDER and run "
    "python -m benchmarks.exported_traces --repository FOLDER, which writes the table"
)


def _gemv(machine: str, m: int, k: int) -> tuple[str, Callable[[], Benchmark]]:
    return machine, lambda: gemv_program(machine_of(machine), m, k)


def _attention(machine: str, model: str, context: int) -> tuple[str, Callable[[], Benchmark]]:
    return machine, lambda: attention_program(machine_of(machine), known_shapes()[model], context, context)


def _block(machine: str, model: str, context: int) -> tuple[str, Callable[[], Benchmark]]:
    """One layer of a model, with an embedding and logits of a few words around it."""
    shape = replace(known_shapes()[model], layers=1, vocab=512)
    return machine, lambda: decode_program(machine_of(machine), shape, context, context)


def _decode(machine: str, model: str, context: int) -> tuple[str, Callable[[], Benchmark]]:
    return machine, lambda: decode_program(machine_of(machine), known_shapes()[model], context, context)


PROGRAMS: Mapping[str, tuple[str, Callable[[], Benchmark]]] = {
    "gemv 576x576, 2 channels": _gemv(CHIP, 576, 576),
    "gemv 1024x1024, 2 channels": _gemv(CHIP, 1024, 1024),
    "gemv 4096x4096, 2 channels": _gemv(CHIP, 4096, 4096),
    "gemv 4096x11008, 8 channels": _gemv(EIGHT, 4096, 11008),
    "gemv 4096x4096, 32 channels": _gemv(CARD, 4096, 4096),
    "gemv 11008x4096, 32 channels": _gemv(CARD, 11008, 4096),
    "attention of SmolLM2-135M over 1024 tokens, 2 channels": _attention(CHIP, "SmolLM2-135M", 1024),
    "attention of Llama-2-7B over 4096 tokens, 8 channels": _attention(EIGHT, "Llama-2-7B", 4096),
    "attention of Llama-3-8B over 4096 tokens, 8 channels": _attention(EIGHT, "Llama-3-8B", 4096),
    "attention of Llama-3-8B over 4096 tokens, 32 channels": _attention(CARD, "Llama-3-8B", 4096),
    "block of Llama-2-7B over 4096 tokens, 8 channels": _block(EIGHT, "Llama-2-7B", 4096),
    "decode step of SmolLM2-135M over 1024 tokens, 2 channels": _decode(CHIP, "SmolLM2-135M", 1024),
}
"""The machine and the program of each row of the table."""


@dataclass(frozen=True)
class Total:
    """What the public simulator printed for the trace of ``program``, whose text has this hash and so many lines."""

    program: str
    lines: int
    sha256: str
    cycles: int


def trace_of(program: str) -> str:
    """The program's trace as exported today."""
    machine, build = PROGRAMS[program]
    benchmark = build()
    return export_program(machine_of(machine), benchmark.generated.program.to_bytes(), benchmark.memory)


def hash_of(text: str) -> str:
    """What names a trace in the table."""
    return hashlib.sha256(text.encode()).hexdigest()


def predicted(program: str, text: str) -> int:
    """Total cycles of a program's trace by profile ``aim-simulator``."""
    return TraceModel(machine_of(PROGRAMS[program][0]), "aim-simulator").run(text.encode()).cycles


def totals() -> dict[str, Total]:
    """The committed table by program."""
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {
            row["program"]: Total(row["program"], int(row["lines"]), row["sha256"], int(row["total_cycles"]))
            for row in rows
        }


def measured(repository: Path, text: str) -> int:
    """What the public simulator says about a trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.trace"
        path.write_text(text, encoding="utf-8")
        command = [str(repository / "build" / "ramulator2"), "-f", "test/example.yaml", "-t", str(path)]
        printed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    found = re.search(r"memory_system_cycles: (\d+)", printed)
    if found is None:
        raise ValueError(f"{command[0]} printed no memory_system_cycles")
    return int(found[1])


def _write(rows: Sequence[Total]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["program", "lines", "sha256", "total_cycles"])
    writer.writerows([row.program, row.lines, row.sha256, row.cycles] for row in rows)
    write_text(TABLE, SOURCE + text.getvalue())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both totals of every program; the exit code is 1 if any differ or a trace is not the one in the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exported_traces", description=__doc__)
    parser.add_argument(
        "--repository", type=Path, metavar="FOLDER", help="the public simulator, built; writes the table"
    )
    args = parser.parse_args(arguments)
    texts = {program: trace_of(program) for program in PROGRAMS}
    if args.repository is not None:
        folder = args.repository.resolve()
        _write([Total(p, t.count("\n"), hash_of(t), measured(folder, t)) for p, t in texts.items()])
    known = totals()
    rows, failed = [], False
    for program, text in texts.items():
        total, ours = known.get(program), predicted(program, text)
        current = total is not None and total.sha256 == hash_of(text)
        failed |= not current or total is None or total.cycles != ours
        public = f"{total.cycles:,}" if current and total is not None else "not this trace"
        rows.append([program, f"{text.count(chr(10)):,}", f"{ours:,}", public])
    print_tables(table("exported traces, total cycles", ["program", "lines", "aim-simulator", "public"], rows))
    if failed:
        print(f"the table is not of today's programs, or a total differs: {REMEDY}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
