"""Parser, subcommand registry and error handler of the command line.

Exit codes: 0 done; 1 the command ran and its finding is negative (``doctor``, ``check``); 2 wrong use or an error that
the user can cure; 70 a defect of wordline; 130 interrupted; 141 the reader of standard output has gone.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

import wordline
from wordline import knobs
from wordline.cli import (
    check,
    devices,
    disasm,
    doctor,
    energy,
    estimate,
    explain,
    generate,
    inspect,
    limits,
    profile,
    score,
    timing,
    trace,
)
from wordline.cli import compile as compile_command
from wordline.cli.output import print_any_text, print_json
from wordline.errors import WordlineError

EXIT_USER = 2
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


class Command(Protocol):
    """What a subcommand's file provides. It imports what is slow to import inside ``run``."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code; raise WordlineError for what the user can cure."""


COMMANDS: tuple[Command, ...] = (
    generate,
    compile_command,
    score,
    inspect,
    disasm,
    timing,
    trace,
    check,
    devices,
    limits,
    energy,
    estimate,
    explain,
    profile,
    doctor,
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands; the chosen one is ``args.command``."""
    parser = argparse.ArgumentParser(prog="wordline", description=wordline.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"wordline {wordline.__version__}")
    subparsers = parser.add_subparsers(metavar="SUBCOMMAND", required=True)
    for command in COMMANDS:
        sub = subparsers.add_parser(command.NAME, help=command.HELP, description=command.HELP, allow_abbrev=False)
        command.add_arguments(sub)
        sub.set_defaults(command=command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors go to standard error; no traceback reaches the user.

    Under ``--json`` an error is also printed on standard output, as ``{"error": {"code", "what", "where", "remedy"}}``.
    """
    print_any_text()
    args = build_parser().parse_args(argv)
    # Compiling makes millions of objects that live to the end; looking through all of them for garbage takes seconds,
    # at the end too.
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)
    show_traceback = False
    try:
        show_traceback = knobs.traceback()
        code: int = args.command.run(args)
        sys.stdout.flush()
    except WordlineError as error:
        return _report(error, args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return EXIT_PIPE
    except OSError as error:
        return _report(_from_os_error(error), args)
    except MemoryError:
        return _report(WordlineError("out-of-memory", "there is not enough memory", remedy="free some"), args)
    except Exception as error:
        return _report_defect(error, show_traceback)
    return code


def _report(error: WordlineError, args: argparse.Namespace) -> int:
    print(f"error[{error.code}]: {error}", file=sys.stderr)
    if getattr(args, "json", False):
        fields = {"code": error.code, "what": error.what, "where": error.where, "remedy": error.remedy}
        try:
            print_json({"error": fields})
            sys.stdout.flush()
        except OSError:
            _discard_output()  # standard error has it
    return EXIT_USER


def _discard_output() -> None:
    """Nobody reads standard output any more: keep the interpreter from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _from_os_error(error: OSError) -> WordlineError:
    name = error.filename if isinstance(error.filename, str | Path) else None
    return WordlineError(
        "system",
        f"the operating system refused: {error.strerror or error}",
        where=None if name is None else str(name),
        remedy="check the path, the permissions and the free space",
    )


def _report_defect(error: Exception, show_traceback: bool) -> int:
    if show_traceback:
        traceback.print_exception(error)
    print(
        f"internal error: {type(error).__name__}: {error}\n  where: {_origin(error.__traceback__)}\n"
        "  do: this is a defect of wordline; report it with what WORDLINE_TRACEBACK=1 shows",
        file=sys.stderr,
    )
    return EXIT_DEFECT


def _origin(trace: TracebackType | None) -> str:
    """File and line of the innermost frame."""
    frame = traceback.extract_tb(trace)[-1]
    return f"{frame.filename}:{frame.lineno}"
