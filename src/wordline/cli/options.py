"""Options that several subcommands share."""

from __future__ import annotations

import argparse

from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine

DEFAULT_MACHINE = "gddr6-aim-chip"


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """``--machine`` and ``--set``; read them with :func:`machine_of`."""
    parser.add_argument(
        "--machine",
        default=DEFAULT_MACHINE,
        metavar="NAME",
        help="machine name, variant name or .toml file (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change one constant of the machine, for example bank_unit.accumulators=2; may be repeated",
    )


def machine_of(args: argparse.Namespace) -> Machine:
    """The machine that ``--machine`` and ``--set`` describe."""
    overrides: dict[str, str] = {}
    for setting in args.set:
        path, equals, value = setting.partition("=")
        if not equals or not path:
            raise WordlineError(
                "bad-setting",
                f"--set {setting} is not of the form PATH=VALUE",
                remedy="write for example --set bank_unit.accumulators=2",
            )
        overrides[path.strip()] = value.strip()
    return load_machine(args.machine, overrides)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def positive(text: str) -> int:
    """Argument type: a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def add_entry_options(parser: argparse.ArgumentParser) -> None:
    """``--entry`` and ``--args``: one run of an artifact, for what needs no weights."""
    parser.add_argument("--entry", default="decode", help="entry point of an artifact (default: %(default)s)")
    parser.add_argument(
        "--args",
        type=_arguments,
        default={},
        metavar="NAME=VALUE,...",
        help="token, position and flags of the step (default: token=0,position=0,flags=1)",
    )


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
