"""Stamped schedules of DRAM commands on the command line: which option writes them, and how."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterable
from pathlib import Path

from wordline.sim.checker import Burst, fold, write_schedule

RECORD_LIMIT = 20_000_000
"""Commands of a schedule that is kept: each takes some 200 bytes on its way."""


def add_schedule_option(parser: argparse.ArgumentParser) -> None:
    """``--schedule``."""
    parser.add_argument(
        "--schedule", type=Path, metavar="FILE", help="write every DRAM command with its cycle (docs/checker.md)"
    )


def schedule_text(name: str, commands: Iterable[tuple[int | str, ...]], total: int) -> str:
    """The schedule of a run that took ``total`` cycles."""
    return bursts_text(name, fold(commands), total)


def bursts_text(name: str, bursts: Iterable[Burst], total: int) -> str:
    """The same from bursts."""
    out = io.StringIO()
    write_schedule(out, name, bursts, total)
    return out.getvalue()
