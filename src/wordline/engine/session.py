"""A session: one sequence of tokens on a resident model, its KV pages and its argument block."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import TracebackType

import numpy as np
import numpy.typing as npt

from wordline.artifact import LOGITS_BYTES, ArgumentNames, Artifact
from wordline.errors import WordlineError
from wordline.numerics.formats import bf16_bits_to_f32
from wordline.runtime import Completion, ResidentModel
from wordline.runtime.memory import row_ranges

ENTRY = "decode"
WORD = 4


class Want(Enum):
    """What a step is to produce: the argument word ``flags``."""

    NOTHING = 0
    NEXT = ArgumentNames.FLAG_LOGITS
    LOGITS = ArgumentNames.FLAG_LOGITS | ArgumentNames.FLAG_SEND


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step. ``next_token`` and ``logits`` (float32 [vocab]) are None if not wanted, or not computed.

    ``cycles`` of device time, 0 if the device was not timed.
    """

    position: int
    want: Want
    next_token: int | None
    logits: npt.NDArray[np.float32] | None
    cycles: int


def checked_context(artifact: Artifact, context: int | None) -> int:
    """``context``, or the artifact's own for None. Raises ``WordlineError("bad-context")`` if it is longer."""
    limit = artifact.manifest.memory.kv.max_context
    if context is None:
        return limit
    if not 1 <= context <= limit:
        raise WordlineError(
            "bad-context",
            f"a context of {context} is wanted, the artifact was compiled for 1 to {limit}",
            where=str(artifact.path),
            remedy="compile with a longer --context, or ask for less",
        )
    return context


class Session:
    """Feed it tokens in order with :meth:`step`; close it (or use ``with``) to give its memory back."""

    def __init__(self, model: ResidentModel, context: int | None = None, timing: bool = True) -> None:
        """Start at position 0.

        Args:
            model: on the device; must outlive the session.
            context: tokens at most; by default what the artifact was compiled for.
            timing: count cycles.

        Raises:
            WordlineError: "bad-context", "out-of-device-memory".
        """
        self._manifest = model.artifact.manifest
        self.kv = self._manifest.memory.kv
        self.context = checked_context(model.artifact, context)
        self.model = model
        self.device = model.device
        self.position = 0
        self._epoch = self.device.epoch
        self._mode = self.device.mode(functional=model.functional, timing=timing)
        self._channels = model.artifact.machine.organisation.channels
        self._pages: list[tuple[int, int]] = []
        self._closed = False
        self._open_memory()

    def _open_memory(self) -> None:
        entry, kv = self._manifest.entries[ENTRY], self.kv
        self._names = entry.arguments
        self._argument_words = entry.argument_words
        table_words = kv.table_words(self._channels)
        self._block = self.device.words.allocate(entry.argument_words)
        try:
            self._table_base = self.device.words.allocate(table_words)
        except WordlineError:
            self.device.words.free(self._block)
            raise
        itemsize = LOGITS_BYTES[self._manifest.logits.dtype]
        self._table = self.device.host_buffer(table_words * WORD)
        self._arguments = self.device.host_buffer(entry.argument_words * WORD)
        self._answer = self.device.host_buffer(entry.argument_words * WORD)
        self._logits = self.device.host_buffer(self._manifest.logits.padded * itemsize)
        self._words = self._arguments.data.view(np.uint32)
        self._table_words = self._table.data.view(np.int32)
        self._words[self._names[ArgumentNames.PAGE_TABLE_BASE]] = self._table_base
        address = self._names[ArgumentNames.LOGITS_ADDRESS]
        self._words[address] = self._logits.address & 0xFFFF_FFFF
        self._words[address + 1] = self._logits.address >> 32

    @property
    def functional(self) -> bool:
        """Whether values are computed; otherwise steps only take device time."""
        return self.model.functional

    def step(self, token: int, want: Want = Want.NEXT) -> Step:
        """Feed ``token`` at the current position.

        Raises:
            WordlineError: "bad-token", "context-full", "out-of-device-memory", "session-lost" (the device was reset),
                or what the device reports.
        """
        if not 0 <= token < self._manifest.logits.vocab:
            raise WordlineError(
                "bad-token",
                f"token {token} is outside the vocabulary of {self._manifest.logits.vocab}",
                remedy="use ids of this model's tokenizer",
            )
        self._check_alive()
        self._make_room()
        queue = self.device.queue
        self._words[self._names[ArgumentNames.TOKEN]] = token
        self._words[self._names[ArgumentNames.POSITION]] = self.position
        self._words[self._names[ArgumentNames.FLAGS]] = want.value
        completions: list[Completion] = []
        slot = self.model.executables[ENTRY].slot
        queue.write_words(self._arguments.address, self._block, self._argument_words)
        end = queue.execute(slot, self._block, self._mode, done=completions.append)
        if want is not Want.NOTHING and self.functional:
            end = queue.read_words(self._answer.address, self._block, self._argument_words)
        end.wait()
        position, self.position = self.position, self.position + 1
        next_token, logits = self._results(want)
        return Step(position, want, next_token, logits, completions[0].end_cycle - completions[0].start_cycle)

    def skip_to(self, position: int) -> None:
        """Timing only: take the tokens before ``position`` as fed, so that the next step is timed at that context."""
        if self.functional:
            raise WordlineError(
                "cannot-skip",
                "a session that computes values cannot skip tokens",
                remedy=f"use the device null:{self.device.machine.name}",
            )
        self._check_alive()
        while self.position < position:
            self._make_room()
            self.position = min(position, (self.position // self.kv.page_tokens + 1) * self.kv.page_tokens)

    def close(self) -> None:
        """Give pages, words and windows back. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        for buffer in (self._table, self._arguments, self._answer, self._logits):
            self.device.unmap(buffer)
        if self._epoch == self.device.epoch:
            self.model.pages.free(self._pages)
            self.device.words.free(self._block)
            self.device.words.free(self._table_base)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _results(self, want: Want) -> tuple[int | None, npt.NDArray[np.float32] | None]:
        if want is Want.NOTHING or not self.functional:
            return None, None
        next_token = int(self._answer.data.view(np.int32)[self._names[ArgumentNames.NEXT_TOKEN]])
        if want is Want.NEXT:
            return next_token, None
        if self._manifest.logits.dtype == "bf16":
            bits = self._logits.data.view(np.uint16)[: self._manifest.logits.vocab]
            return next_token, bf16_bits_to_f32(bits)
        return next_token, self._logits.data.view(np.float32)[: self._manifest.logits.vocab].copy()

    def _check_alive(self) -> None:
        if self._closed or self._epoch != self.device.epoch:
            raise WordlineError(
                "session-lost",
                "the session is closed" if self._closed else "the device was reset since the session began",
                where=str(self.device),
                remedy="start a new session and feed its tokens again",
            )

    def _make_room(self) -> None:
        """At the first token of a page: one page for every layer and KV head, zeroed, and the table that names them."""
        if self.position >= self.context:
            raise WordlineError(
                "context-full",
                f"the session has reached its context of {self.context} tokens",
                remedy="start a new session, or compile with a longer --context",
            )
        if self.position % self.kv.page_tokens:
            return
        page, channels, kv = self.position // self.kv.page_tokens, self._channels, self.kv
        places = [(layer, head) for layer in range(kv.layers) for head in range(kv.kv_heads)]
        holders = [kv.channel(head, page, channels) for _, head in places]
        counts = [holders.count(channel) for channel in range(channels)]
        rows = self.model.pages.allocate(counts)
        self._pages += [(channel, row) for channel, taken in enumerate(rows) for row in taken]
        if self.functional:
            for channel, taken in enumerate(rows):
                for first, count in row_ranges(taken, kv.rows_per_page):
                    # Cache positions not written yet are multiplied by zero probabilities: they must be finite.
                    self.device.queue.zero_rows(first, count, 1 << channel)
        remaining = [iter(taken) for taken in rows]
        for (layer, head), channel in zip(places, holders, strict=True):
            self._table_words[kv.table_index(layer, head, page, channels)] = next(remaining[channel])
        self.device.queue.write_words(self._table.address, self._table_base, self._table_words.size)
