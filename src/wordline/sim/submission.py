"""What an entry point of an artifact needs besides weights to be timed: its program and the controller's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordline.artifact import ArgumentNames, Artifact, Entry, KvLayout
from wordline.errors import WordlineError


@dataclass(frozen=True)
class Submission:
    """One run of an entry point; its argument block is at word 0 of ``memory``, int32 words."""

    title: str
    image: bytes
    memory: npt.NDArray[np.int32]


def entry_submission(artifact: Artifact, entry: str, arguments: Mapping[str, int]) -> Submission:
    """One run of an entry point.

    Args:
        artifact: weights are not needed.
        entry: for example "decode".
        arguments: values of ``token``, ``position`` and ``flags``; by default 0, 0 and logits wanted. KV pages are
            placed as a first session on an empty device would have them.

    Raises:
        WordlineError: "unknown-entry", "bad-argument".
    """
    image = artifact.image(entry)
    manifest = artifact.manifest
    values = {ArgumentNames.TOKEN: 0, ArgumentNames.POSITION: 0, ArgumentNames.FLAGS: ArgumentNames.FLAG_LOGITS}
    limits = {
        ArgumentNames.TOKEN: manifest.logits.vocab,
        ArgumentNames.POSITION: manifest.memory.kv.max_context,
        ArgumentNames.FLAGS: 1 << 31,
    }
    for name, value in arguments.items():
        if name not in limits:
            raise WordlineError(
                "bad-argument", f"there is no argument {name!r}", remedy=f"give one of {', '.join(limits)}"
            )
        if not 0 <= value < limits[name]:
            raise WordlineError(
                "bad-argument", f"{name} is {value}", remedy=f"give a value from 0 to {limits[name] - 1}"
            )
        values[name] = value
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    memory = _memory(manifest.entries[entry], manifest.memory.kv, artifact.machine.organisation.channels, values)
    return Submission(f"{manifest.model.name}, entry {entry}: {given}", image, memory)


def _memory(entry: Entry, kv: KvLayout, channels: int, values: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """Argument block at word 0, page table behind it; pages in the order in which a session takes them."""
    table = np.zeros(kv.layers * kv.kv_heads * kv.pages_per_channel * channels, np.int32)
    free = [kv.first_row] * channels
    for page in range(values[ArgumentNames.POSITION] // kv.page_tokens + 1):
        for layer in range(kv.layers):
            for head in range(kv.kv_heads):
                channel = (page + head) % channels
                place = ((layer * kv.kv_heads + head) * kv.pages_per_channel + page // channels) * channels + channel
                table[place] = free[channel]
                free[channel] += kv.rows_per_page
    block = np.zeros(entry.argument_words, np.int32)
    for name, value in values.items():
        block[entry.arguments[name]] = value
    block[entry.arguments[ArgumentNames.PAGE_TABLE_BASE]] = entry.argument_words
    return np.concatenate([block, table])
