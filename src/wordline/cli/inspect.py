"""``wordline inspect``: what is in an artifact."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordline.cli.memory import MIB, memory_document, memory_map, memory_tables
from wordline.cli.memory_picture import memory_picture
from wordline.cli.options import add_json_option
from wordline.cli.output import print_json, print_tables, table, write_text
from wordline.cli.searching import choice_tables
from wordline.cli.targets import model_path

if TYPE_CHECKING:
    from wordline.artifact import Artifact, Entry

NAME = "inspect"
HELP = "what is in an artifact: sizes, memory map, entry points"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("artifact", metavar="NAME.wl", help="artifact")
    parser.add_argument(
        "--memory", action="store_true", help="who owns which rows, scratch over time, and what each context takes"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the memory plan")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Check the artifact and describe it."""
    from wordline.artifact import open_artifact

    artifact = open_artifact(model_path(args.artifact))
    if args.svg is not None:
        write_text(args.svg, memory_picture(artifact))
    if args.json:
        print_json(memory_document(artifact) if args.memory else _document(artifact))
        return 0
    if args.memory:
        print_tables(*memory_tables(artifact))
        return 0
    if args.svg is not None:
        print(f"{args.svg}: memory of {artifact.manifest.model.name} on {artifact.machine.name}")
        return 0
    manifest = artifact.manifest
    model, machine = manifest.model, artifact.machine
    lines = [
        f"model    {model.name} ({model.architecture}), {model.parameters / 1e6:.1f} M parameters, from {model.source}",
        f"machine  {machine.name} ({machine.hash[:12]}): {machine.description}",
        f"artifact {artifact.digest[:12]}, by wordline {manifest.wordline_version}; every part matches its hash",
    ]
    print_tables(*lines, "", _parts(artifact), "", _memory(artifact), "", _weights(artifact))
    print_tables("", *choice_tables(manifest.choices, manifest.search))
    for name, entry in manifest.entries.items():
        print_tables("", _streams(artifact, name), "", _provenance(name, entry))
    return 0


def _parts(artifact: Artifact) -> Any:
    parts = artifact.manifest.parts
    rows = [[name, f"{part.bytes:,}", part.sha256[:12]] for name, part in parts.items()]
    return table("parts", ["file", "bytes", "sha256"], rows)


def _memory(artifact: Artifact) -> Any:
    kv = artifact.manifest.memory.kv
    rows = [[r["region"], str(r["first_row"]), str(r["rows"]), f"{r['bytes'] / MIB:.1f}"] for r in memory_map(artifact)]
    title = f"DRAM; a KV page is {kv.page_tokens} tokens of one head in {kv.rows_per_page} rows"
    return table(title, ["region", "first row", "rows", "MiB"], rows)


def _weights(artifact: Artifact) -> Any:
    """The weights; those of all layers share a line."""
    from wordline.artifact.names import starred

    groups: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for weight in artifact.manifest.memory.weights:
        groups.setdefault((starred(weight.name), weight.dtype, weight.shape), []).append(weight.rows)
    rows = [
        [name, dtype, "x".join(map(str, shape)), str(len(counts)), str(sum(counts))]
        for (name, dtype, shape), counts in groups.items()
    ]
    bound = "" if artifact.weights is not None else " (unbound: this artifact can be timed, not run)"
    title = f"weights{bound}; weights that share an input share rows"
    return table(title, ["weight", "format", "shape", "count", "rows"], rows, left=2)


def _streams(artifact: Artifact, name: str) -> Any:
    program = artifact.program(name)
    rows = []
    for number, stream in enumerate(program.streams):
        kinds = Counter(instr.name for instr in stream.instrs).most_common(6)
        shown = ", ".join(f"{count} {kind}" for kind, count in kinds)
        rows.append([f"{number} {stream.engine.name.lower()}", shown, str(len(stream.instrs))])
    size = artifact.manifest.entries[name].bytes
    return table(f"entry {name}: {size:,} bytes", ["stream", "most frequent", "instructions"], rows, left=2)


def _provenance(name: str, entry: Entry) -> Any:
    kinds: dict[str, list[int]] = {}
    for part in entry.provenance:
        counts = kinds.setdefault(part.kind, [0, 0])
        counts[0] += 1
        counts[1] += part.last - part.first + 1
    rows = [[kind, str(ranges), str(instructions)] for kind, (ranges, instructions) in sorted(kinds.items())]
    return table(f"entry {name} by kind of operation", ["kind", "ranges", "instructions"], rows)


def _document(artifact: Artifact) -> dict[str, Any]:
    return {
        "path": str(artifact.path),
        "digest": artifact.digest,
        "manifest": dataclasses.asdict(artifact.manifest),
        "dram": memory_map(artifact),
    }
