"""``wordline trace export``: a compiled program in the language of the public AiM simulator."""

from __future__ import annotations

import argparse
from pathlib import Path

from wordline.cli.options import add_entry_options
from wordline.cli.output import write_text
from wordline.cli.targets import model_path

NAME = "trace"
HELP = "compiled programs as traces of the public AiM simulator"
EXPORT = "write what an entry point does to the banks as a trace: waits as SYNC, rows opened by the simulator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    export = actions.add_parser("export", help=EXPORT, description=EXPORT, allow_abbrev=False)
    export.add_argument("artifact", metavar="NAME.wl", help="artifact")
    add_entry_options(export)
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write the trace")


def run(args: argparse.Namespace) -> int:
    """Export."""
    from wordline.artifact import open_artifact
    from wordline.sim.trace_export import export_artifact

    text = export_artifact(open_artifact(model_path(args.artifact)), args.entry, args.args)
    write_text(args.output, text)
    print(f"{args.output}: {text.count(chr(10)):,} lines")
    return 0
