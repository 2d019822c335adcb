"""Device programs as traces in the language of the public AiM simulator, so that others can run our code in it.

The trace holds what each channel does to banks, buffers and accumulators, in the order in which it issues: a wait
becomes SYNC, row opening and mode switches are left to the simulator, and what the language lacks (columns, buffer
offsets, accumulators, vector unit and link) is left out. Such a trace takes another time than the program; what can be
compared is how long either simulator says that this trace takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
import numpy.typing as npt

from wordline import _native
from wordline.artifact import Artifact
from wordline.machines import Machine
from wordline.sim.submission import entry_submission

#: DRAM command -> instruction, and whether it takes a number of columns; the others are repeated.
_INSTRUCTIONS = {
    "MAC16": ("MAC_ABK", True),
    "MAC": ("MAC_SBK", True),
    "RDCP": ("COPY_BKGB", True),
    "WRCP": ("COPY_GBBK", True),
    "WRGB": ("WR_GB", True),
    "WRMAC16": ("WR_BIAS", False),
    "RDMAC16": ("RD_MAC", False),
    "RD": ("RD_SBK", False),
    "WR": ("WR_SBK", False),
}
_WITH_REGISTER = {"WR_GB", "WR_BIAS", "RD_MAC", "RD_SBK", "WR_SBK"}

_Access = tuple[int, int, str, int, int, int]  # cycle, channel, command or WAIT, count, bank, row


def export_artifact(artifact: Artifact, entry: str, arguments: Mapping[str, int]) -> str:
    """The trace of one run of an entry point, see :func:`~wordline.sim.submission.entry_submission`.

    Raises:
        WordlineError: "unknown-entry", "bad-argument", or a fault of the program.
    """
    submission = entry_submission(artifact, entry, arguments)
    machine = artifact.machine
    comments = [submission.title, f"device program for machine {machine.name} ({machine.hash[:12]})"]
    return export_program(machine, submission.image, submission.memory, comments=comments)


def export_program(
    machine: Machine,
    image: bytes,
    memory: npt.NDArray[np.int32],
    *,
    argument_base: int = 0,
    comments: Iterable[str] = (),
) -> str:
    """The trace of one submission of a program.

    Args:
        machine: what the program is for; bit ``channels - 1 - c`` of a mask is channel c, as there.
        image: of the program.
        memory: int32 words of the controller's memory from word 0 up; the rest is zero.
        argument_base: word address of the argument block.
        comments: lines for the head of the trace.

    Raises:
        WordlineError: "bad-program", "bad-machine", or a fault of the program.
    """
    model = _native.TimingModel(machine.native())
    words = np.ascontiguousarray(memory, dtype=np.int32)
    accesses = model.run(model.load_program(image), argument_base, words, accesses=True).accesses
    # Other programs read the trace: a name of a model in another script must not be in their way.
    ascii_comments = (comment.encode("ascii", "replace").decode() for comment in comments)
    lines = [f"# {' '.join(comment.split())}" for comment in ascii_comments]
    lines += _lines(machine, accesses)
    return "\n".join([*lines, "AiM EOC", ""])


def _lines(machine: Machine, accesses: Iterable[_Access]) -> Iterator[str]:
    """What all channels do alike in the same cycle is one instruction."""
    channels = machine.organisation.channels
    idle = True  # nothing since the last SYNC
    for _, together in groupby(accesses, key=lambda access: access[0]):
        masks: dict[tuple[str, int, int, int], int] = {}
        for access in together:
            channel, key = access[1], access[2:]
            masks[key] = masks.get(key, 0) | 1 << channels - 1 - channel
        for (command, count, bank, row), mask in masks.items():
            if command != "WAIT":
                yield from _instructions(command, count, bank, row, mask, machine.organisation.columns)
                idle = False
            elif not idle:
                yield "AiM SYNC"
                idle = True


def _instructions(command: str, count: int, bank: int, row: int, mask: int, columns: int) -> Iterator[str]:
    name, sized = _INSTRUCTIONS[command]
    register = " 0" if name in _WITH_REGISTER else ""
    place = "".join(f" {value}" for value in (bank, row) if value >= 0)
    if not sized:
        for _ in range(count):
            yield f"AiM {name}{register} {mask:#x}{place}"
        return
    for first in range(0, count, columns):
        yield f"AiM {name} {min(columns, count - first)}{register} {mask:#x}{place}"
