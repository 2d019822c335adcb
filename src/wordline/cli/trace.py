"""``wordline trace export``: a compiled program in the language of the public AiM simulator."""

from __future__ import annotations

import argparse
from pathlib import Path

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
    export.add_argument("--entry", default="decode", help="entry point (default: %(default)s)")
    export.add_argument(
        "--args",
        type=_arguments,
        default={},
        metavar="NAME=VALUE,...",
        help="token, position and flags of the step (default: token=0,position=0,flags=1)",
    )
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write the trace")


def run(args: argparse.Namespace) -> int:
    """Export."""
    from wordline.artifact import open_artifact
    from wordline.sim.trace_export import export_artifact

    text = export_artifact(open_artifact(model_path(args.artifact)), args.entry, args.args)
    write_text(args.output, text)
    print(f"{args.output}: {text.count(chr(10)):,} lines")
    return 0


def _arguments(text: str) -> dict[str, int]:
    """Argument type: NAME=VALUE, separated by commas."""
    values: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            values[name.strip()] = int(value, 0)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is not of the form NAME=VALUE, VALUE a whole number") from None
    return values
