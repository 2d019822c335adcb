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
from wordline.artifact import ArgumentNames, Artifact, Entry, KvLayout
from wordline.errors import WordlineError
from wordline.machines import Machine

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
_GIVEN_BY_USER = (ArgumentNames.TOKEN, ArgumentNames.POSITION, ArgumentNames.FLAGS)

_Access = tuple[int, int, str, int, int, int]  # cycle, channel, command or WAIT, count, bank, row


def export_artifact(artifact: Artifact, entry: str, arguments: Mapping[str, int]) -> str:
    """The trace of one run of an entry point.

    Args:
        artifact: weights are not needed.
        entry: for example "decode".
        arguments: values of ``token``, ``position`` and ``flags``; by default 0, 0 and logits wanted. KV pages are
            placed as a first session on an empty device would have them.

    Raises:
        WordlineError: "unknown-entry", "bad-argument", or a fault of the program.
    """
    image, machine = artifact.image(entry), artifact.machine
    found = artifact.manifest.entries[entry]
    values = {ArgumentNames.TOKEN: 0, ArgumentNames.POSITION: 0, ArgumentNames.FLAGS: ArgumentNames.FLAG_LOGITS}
    limits = {
        ArgumentNames.TOKEN: artifact.manifest.logits.vocab,
        ArgumentNames.POSITION: artifact.manifest.memory.kv.max_context,
        ArgumentNames.FLAGS: 1 << 31,
    }
    for name, value in arguments.items():
        if name not in limits:
            raise WordlineError(
                "bad-argument", f"there is no argument {name!r}", remedy=f"give one of {', '.join(_GIVEN_BY_USER)}"
            )
        if not 0 <= value < limits[name]:
            raise WordlineError(
                "bad-argument", f"{name} is {value}", remedy=f"give a value from 0 to {limits[name] - 1}"
            )
        values[name] = value
    memory = _memory(found, artifact.manifest.memory.kv, machine.organisation.channels, values)
    comments = [
        f"{artifact.manifest.model.name}, entry {entry}: "
        + ", ".join(f"{name}={value}" for name, value in values.items()),
        f"device program for machine {machine.name} ({machine.hash[:12]})",
    ]
    return export_program(machine, image, memory, comments=comments)


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
    model = _native.TimingModel(machine.flat())
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


def _memory(entry: Entry, kv: KvLayout, channels: int, values: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Argument block at word 0, page table behind it; pages in the order in which a session takes them."""
    table = np.zeros(kv.table_words(channels), np.int32)
    free = [kv.first_row] * channels
    for page in range(values[ArgumentNames.POSITION] // kv.page_tokens + 1):
        for layer in range(kv.layers):
            for head in range(kv.kv_heads):
                channel = kv.channel(head, page, channels)
                table[kv.table_index(layer, head, page, channels)] = free[channel]
                free[channel] += kv.rows_per_page
    block = np.zeros(entry.argument_words, np.int32)
    for name, value in values.items():
        block[entry.arguments[name]] = value
    block[entry.arguments[ArgumentNames.PAGE_TABLE_BASE]] = entry.argument_words
    return np.concatenate([block, table])
