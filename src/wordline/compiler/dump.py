"""Every level of one compilation as text files, for people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wordline.compiler.compiled import Compiled
from wordline.compiler.kernel.ir import Task
from wordline.compiler.memory import ScratchPlan
from wordline.compiler.synchronise import Synchronisation
from wordline.errors import WordlineError
from wordline.files import write_text
from wordline.graph.text import print_graph
from wordline.isa.disassemble import disassemble


def dump_ir(compiled: Compiled, directory: Path) -> list[Path]:
    """Write the graph, the placement of weights, the kernels, the scratch plan and the program; returns the files.

    Raises:
        WordlineError: "write-failed", the folder cannot be written.
    """
    levels: dict[str, Callable[[], str]] = {
        "1-graph.mlir": lambda: print_graph(compiled.graph),
        "2-dispatch.txt": lambda: _dispatch(compiled),
        "3-layout.txt": lambda: _layout(compiled),
        "4-kernels.txt": lambda: _kernels(compiled.tasks, compiled.sync),
        "5-scratch.txt": lambda: _scratch(compiled.plan, compiled.tasks),
        "6-program.txt": lambda: _program(compiled),
    }
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in levels.items():
            path = directory / name
            write_text(path, text())
            written.append(path)
    except OSError as error:
        raise WordlineError(
            "write-failed",
            f"the intermediate representations cannot be written: {error.strerror or error}",
            where=str(directory),
            remedy="name a folder with room that you may write to",
        ) from error
    return written


def _dispatch(compiled: Compiled) -> str:
    lines = []
    for decision in compiled.decisions:
        lines.append(f"{decision.op}: {decision.winner.name}")
        for candidate in decision.candidates:
            verdict = "" if candidate.excluded is None else f"  excluded: {candidate.excluded}"
            lines.append(f"  {candidate.name:21} {candidate.cost_ns:14.1f} ns{verdict}")
            lines += [f"    {term.name:16} {term.ns:14.1f} ns  {term.constants}" for term in candidate.terms]
    return "\n".join(lines) + "\n"


def _layout(compiled: Compiled) -> str:
    lines = ["rows           local rows  columns  matrices (outputs x inputs)"]
    for stream in compiled.lowered.streams:
        span = f"{stream.first_row}..{stream.first_row + stream.dram_rows - 1}"
        names = ", ".join(f"{name} ({m} x {stream.k})" for name, m in zip(stream.names, stream.outputs, strict=True))
        lines.append(f"{span:14} {stream.total_rows:10}  {stream.columns:7}  {names}")
    for place in compiled.lowered.parameters.places.values():
        last = place.column + place.columns - 1
        lines.append(f"{place.row:<14} bank {place.bank}, columns {place.column}..{last}: {place.name}")
    kv = compiled.lowered.kv
    lines.append(
        f"KV pages from row {compiled.weight_rows}: {kv.page_tokens} tokens of one head in {kv.rows_per_page} rows; "
        f"{kv.pages_per_channel} pages a channel for each of {kv.layers} layers x {kv.kv_heads} heads"
    )
    return "\n".join(lines) + "\n"


def _kernels(tasks: list[Task], sync: Synchronisation) -> str:
    parts = []
    for index, task in enumerate(tasks):
        waits = "".join(f"\n  after {wait.engine.name.lower()} signal {wait.count}" for wait in sync.waits[index])
        signal = "\n  signals" if sync.signals[index] else ""
        parts.append(f"#{index} {task}{waits}{signal}\n")
    return "\n".join(parts)


def _scratch(plan: ScratchPlan, tasks: list[Task]) -> str:
    lines = [f"peak {plan.peak} bytes a channel", "  first   last  offset   bytes  buffer"]
    for p in plan.placements:
        last = min(p.last, len(tasks) - 1)
        lines.append(f"{p.first:7} {last:6} {p.offset:7} {p.size:7}  {p.buffer.name}")
    return "\n".join(lines) + "\n"


def _program(compiled: Compiled) -> str:
    return disassemble(compiled.generated.program, compiled.generated.provenance)
