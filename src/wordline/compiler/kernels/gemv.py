"""GEMV in the banks: y = W x for one or more matrices that share x.

Per group of local rows: fill the buffer with a chunk of x, one burst of MACs per local row, next chunk; then read the
accumulators out and zero them. If chunks are outermost, that is done for all groups of one chunk, then of the next, and
the results are partial sums. The next row is opened before each register-mode visit, so the visit hides under the row
turn; refresh is offered at every row turn, where it costs no extra turn.

The results are delivered in stages: runs of local rows, each read out as soon as it is complete, so that other engines
work on one stage while the banks compute the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.compiler.integers import ceil_div
from wordline.compiler.kernel.builder import CHANNEL, Builder, turn_row
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, linear
from wordline.compiler.layout import Chunk, WeightStream


@dataclass(frozen=True, slots=True)
class Stage:
    """Results ``first .. end`` (exclusive) of a stream's local rows, slice after slice; they go to ``buffer``, one
    column (16 banks, bf16) a row.
    """

    first: int
    end: int
    buffer: ScratchBuffer


StageCode = tuple[tuple[Item, ...], tuple[Item, ...]]
"""Prologue and body of the channel task that ends with a stage's results in scratch."""


def gemv(
    stream: WeightStream, x: ScratchTensor, zeros: ScratchBuffer, stages: Sequence[Stage], *, awaited: bool = True
) -> list[StageCode]:
    """The channel tasks, one a stage, which must follow each other directly.

    ``x``: bf16 in every channel, K padded with zeros to whole columns. ``stages`` cover the stream's results in order;
    each ends with a group of accumulators or inside the last group. ``awaited``: the channels wait for x, so that
    refresh before it costs nothing.
    """
    return _Gemv(stream, x, zeros, awaited).tasks(stages)


class _Gemv:
    def __init__(self, stream: WeightStream, x: ScratchTensor, zeros: ScratchBuffer, awaited: bool) -> None:
        self._stream, self._x, self._zeros, self._awaited = stream, x, zeros, awaited
        self._groups = list(stream.groups())
        self._at = {group[0].first_result: index for index, group in enumerate(self._groups)}
        self._builder = Builder()
        self._source = linear(x.offset)
        self._open_row = -1
        self._buffered = (-1, 0)  # first column and columns of what is in the buffer
        self._done = 0  # bursts of the last chunk

    def tasks(self, stages: Sequence[Stage]) -> list[StageCode]:
        last = len(self._groups) - 1
        last_group = self._groups[last][0].first_result
        codes: list[StageCode] = []
        group = 0  # that the next task starts with; its first row is open
        for stage in stages:
            inside_last = stage.first > last_group
            if not inside_last:
                self._find_part()
            if stage.first == 0:
                self._builder.extend(turn_row(self._stream.first_row, idle=self._awaited))
                self._zero(0)
            prologue = self._builder.take()
            if not inside_last:
                ends_inside_last = stage.end > last_group
                following = last if ends_inside_last else self._at[stage.end]
                if following > group:
                    self._compute(group)
                    self._steps(group + 1, following - 1, stage)
                    self._turn(following, stage)
                    group = following
                if ends_inside_last:
                    self._compute(last, but_last_chunk=True)
            if stage.end > last_group:
                self._last_rows(max(stage.first, last_group), stage)
            codes.append((prologue, self._builder.take()))
        return codes

    def _find_part(self) -> None:
        """Each channel fills its buffer from its own part of x."""
        stream = self._stream
        if stream.parts > 1:
            part = self._builder.calc("SHR", CHANNEL, stream.part_channels.bit_length() - 1, "part")
            offset = self._builder.calc("MUL", part, stream.columns * stream.column_bytes, "offset")
            self._source = linear(offset) + self._x.offset

    def _steps(self, first: int, last: int, stage: Stage) -> None:
        """Groups ``first .. last`` (inclusive), each with the read-out of the one before it."""
        while first <= last:
            # A slice's first group fills the buffer, which the others find filled.
            if self._buffered != self._last_chunk(first):
                self._turn(first, stage)
                self._compute(first)
                first += 1
                continue
            slice_ = self._groups[first][0].first_column
            end = next((g for g in range(first, last + 1) if self._groups[g][0].first_column != slice_), last + 1)
            self._alike(first, end - 1, stage)
            first = end

    def _alike(self, first: int, last: int, stage: Stage) -> None:
        """Groups ``first .. last`` of one slice: after some of them they repeat, whole DRAM rows further."""
        period, rows = self._period(first)
        loops = (last - first + 1) // period
        if loops > 1:
            with self._builder.loop(loops, "group") as register:
                for group in range(first, first + period):
                    row_shift = linear(register) * rows
                    results = linear(register) * (period * self._stream.group * self._stream.column_bytes)
                    self._turn(group, stage, row_shift, results)
                    self._compute(group, row_shift)
            first += loops * period
        for group in range(first, last + 1):
            self._turn(group, stage)
            self._compute(group)

    def _period(self, group: int) -> tuple[int, int]:
        """After how many groups the slice of ``group`` repeats, and how many DRAM rows that is."""
        stream = self._stream
        columns = stream.group * sum(chunk.columns for chunk in self._groups[group])
        if stream.choice.padded:
            return 1, ceil_div(columns, stream.row_columns)
        period = next(p for p in range(1, stream.row_columns + 1) if p * columns % stream.row_columns == 0)
        return period, period * columns // stream.row_columns

    def _last_chunk(self, group: int) -> tuple[int, int]:
        """First column and columns of what is in the buffer when ``group`` is done."""
        chunk = self._groups[group][-1]
        return chunk.first_column, chunk.columns

    def _turn(self, group: int, stage: Stage, row_shift: IntLike = 0, result_shift: IntLike = 0) -> None:
        """Open the first row of ``group`` and read out the group before it."""
        self._open_chunk(self._groups[group][0], row_shift)
        before = self._groups[group - 1][0]
        self._read(before.first_result, before.rows, 0, stage, result_shift)

    def _compute(self, group: int, row_shift: IntLike = 0, *, but_last_chunk: bool = False) -> None:
        """Everything of a group whose first row is open, except its read-out. The first group is zeroed already."""
        chunks = self._groups[group]
        if group:
            self._zero(group)
        for index, chunk in enumerate(chunks):
            if index:
                self._open_chunk(chunk, row_shift)
            self._fill(chunk)
            self._open_row = self._stream.first_row + chunk.position // self._stream.row_columns
            if not (but_last_chunk and index == len(chunks) - 1):
                self._bursts(list(self._stream.bursts(chunk)), row_shift)

    def _last_rows(self, first: int, stage: Stage) -> None:
        """Rows ``first .. stage.end`` of the last chunk of all; they are read out under the next row turn."""
        chunk = self._groups[-1][-1]
        bursts = list(self._stream.bursts(chunk))
        turns = [i for i in range(1, len(bursts)) if bursts[i][0] != bursts[i - 1][0]]
        begin, end = first - chunk.first_result, stage.end - chunk.first_result
        upto = next((i for i in turns if bursts[i][3] >= end), len(bursts))
        self._bursts(bursts[self._done : upto], 0)
        if self._done < upto < len(bursts):
            self._builder.extend(turn_row(bursts[upto][0]))
            self._open_row = bursts[upto][0]
        self._done = upto
        self._read(first, end - begin, begin, stage)

    def _bursts(self, bursts: Sequence[tuple[int, int, int, int, int]], row_shift: IntLike) -> None:
        """Bursts of a chunk, of which the first finds ``_open_row`` open."""
        commands: list[Command] = []
        for row, column, buffer, accumulator, count in bursts:
            if row != self._open_row:
                commands.extend(turn_row(linear(row) + row_shift))
                self._open_row = row
            commands.append(
                command(
                    "MAC16",
                    row=linear(row) + row_shift,
                    column=column,
                    buffer=buffer,
                    accumulator=accumulator,
                    count=count,
                )
            )
        self._builder.rolled(commands)

    def _open_chunk(self, chunk: Chunk, row_shift: IntLike) -> None:
        """Open the chunk's first row, unless it goes on in the row that is open."""
        row, column = divmod(chunk.position, self._stream.row_columns)
        if column == 0:
            self._builder.extend(turn_row(linear(self._stream.first_row + row) + row_shift))

    def _fill(self, chunk: Chunk) -> None:
        """The chunk's part of x into the buffer, unless it is there."""
        if self._buffered == (chunk.first_column, chunk.columns):
            return
        self._buffered = (chunk.first_column, chunk.columns)
        source = Address(self._x.buffer, self._source + chunk.first_column * self._stream.column_bytes)
        self._builder.emit("WRGB", buffer=0, count=chunk.columns, source=source)

    def _zero(self, group: int) -> None:
        self._builder.emit("WRMAC16", accumulator=0, count=self._groups[group][0].rows, source=Address(self._zeros))

    def _read(self, first: int, rows: int, accumulator: int, stage: Stage, shift: IntLike = 0) -> None:
        target = Address(stage.buffer, linear((first - stage.first) * self._stream.column_bytes) + shift)
        self._builder.emit("RDMAC16", accumulator=accumulator, count=rows, target=target)
