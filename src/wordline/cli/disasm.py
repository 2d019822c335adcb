"""``wordline disasm``: the device program of an artifact, as text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wordline.cli.targets import model_path
from wordline.errors import WordlineError

if TYPE_CHECKING:
    from wordline.artifact import Artifact, Range

NAME = "disasm"
HELP = "the device program of an artifact, with the source operation of each range"

_NUMBERED = re.compile(r"\s*(\d+): ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("artifact", metavar="NAME.wl", help="artifact")
    parser.add_argument("--entry", default="decode", help="entry point (default: %(default)s)")
    parser.add_argument("--op", metavar="NAME", help="only operations whose name or kind contains this")


def run(args: argparse.Namespace) -> int:
    """Print the program."""
    from wordline.artifact import open_artifact
    from wordline.isa.disassemble import disassemble, disassemble_stream

    artifact = open_artifact(model_path(args.artifact))
    program = artifact.program(args.entry)
    provenance = artifact.manifest.entries[args.entry].provenance
    if args.op is None:
        print(disassemble(program, provenance), end="")
        return 0
    chosen = [r for r in provenance if args.op in r.op or args.op in r.kind]
    if not chosen:
        raise _unknown_operation(artifact, args.op, provenance)
    for number, stream in enumerate(program.streams):
        ranges = [r for r in chosen if r.stream == number]
        if not ranges:
            continue
        lines = disassemble_stream(stream)
        print(lines[0])
        for wanted in ranges:
            print(f"  ; {wanted.op} [{wanted.kind}] {wanted.loc}".rstrip())
            print("\n".join(_within(lines[1:], wanted)))
    return 0


def _within(lines: Sequence[str], wanted: Range) -> Iterator[str]:
    """The lines of the instructions of a range; lines without a number belong to the instruction before."""
    index = -1
    for line in lines:
        numbered = _NUMBERED.match(line)
        if numbered:
            index = int(numbered[1])
        if wanted.first <= index <= wanted.last:
            yield line


def _unknown_operation(artifact: Artifact, name: str, provenance: Sequence[Range]) -> WordlineError:
    kinds = ", ".join(sorted({r.kind for r in provenance})) or "none: the artifact records no sources"
    return WordlineError(
        "unknown-operation",
        f"no operation's name or kind contains {name!r}",
        where=str(artifact.path),
        remedy=f"kinds in it: {kinds}",
    )
