"""Where data lie in the banks: weight streams, vector parameters and KV pages.

A weight matrix W [M, K] of a GEMV is spread over channels and banks by output: output m is on channel ``m // shard``,
in bank ``m % banks`` of its local row ``(m % shard) // banks``. Each bank then holds one stream of columns in the order
in which the kernel uses them: for each group of local rows (as many as there are accumulators), for each chunk of the
input that fits the buffer, the chunk's columns of each local row. Chunks may also be outermost: then each is a *slice*
of its own, whose groups follow each other, and the results of the slices are partial sums.

K may be split: then the channels form ``parts`` equal runs, each of which holds the whole of M for its own part of K
in the layout above, and the results of the runs are partial sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordline.compiler.choices import GemvChoice, plain_gemv
from wordline.compiler.integers import ceil_div, is_power_of_two, round_up
from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.numerics.formats import f32_to_bf16_bits


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of input columns that is in the buffer at one time, for one group of local rows.

    ``position``: of the chunk's first column in the bank's stream; ``first_row``/``rows``: local rows of the group;
    ``first_column``/``columns``: of the channel's part of K; ``first_result``: of the group's results, which are those
    of all local rows for the first slice, then for the next.
    """

    position: int
    first_row: int
    rows: int
    first_column: int
    columns: int
    first_result: int


@dataclass(frozen=True, slots=True)
class WeightStream:
    """The placement of one or more matrices that share their input.

    Attributes:
        names: graph constants, in order.
        outputs: M of each matrix.
        k: input elements.
        local_rows: local rows of each matrix (per bank).
        choice: groups, chunks, order, parts and padding.
        first_row: DRAM row where the stream starts, in every bank of every channel.
        columns: columns of one local row, which is one part of K.
        column_bytes, row_columns, lanes, banks, channels: of the machine.
    """

    names: tuple[str, ...]
    outputs: tuple[int, ...]
    k: int
    local_rows: tuple[int, ...]
    choice: GemvChoice
    first_row: int
    columns: int
    column_bytes: int
    row_columns: int
    lanes: int
    banks: int
    channels: int

    @property
    def group(self) -> int:
        """Local rows of a group, except a slice's last one."""
        return self.choice.group

    @property
    def chunk(self) -> int:
        """Columns of a chunk, except the last one."""
        return self.choice.chunk

    @property
    def parts(self) -> int:
        """Runs of channels that K is split over."""
        return self.choice.parts

    @property
    def slices(self) -> int:
        """Passes over all local rows, each for its own columns of the channel's part of K."""
        return ceil_div(self.columns, self.chunk) if self.choice.order == "inputs" else 1

    @property
    def partial(self) -> bool:
        """The results are partial sums, which the vector unit adds up."""
        return self.parts > 1 or self.slices > 1

    @property
    def part_channels(self) -> int:
        """Channels that share one part of K."""
        return self.channels // self.parts

    @property
    def total_rows(self) -> int:
        """Local rows of all matrices, in each bank."""
        return sum(self.local_rows)

    @property
    def dram_rows(self) -> int:
        """DRAM rows the stream takes in every bank."""
        if not self.choice.padded:
            return ceil_div(self.total_rows * self.columns, self.row_columns)
        *_, last = self.groups()
        return ceil_div(last[-1].position + last[-1].rows * last[-1].columns, self.row_columns)

    def shard(self, matrix: int) -> int:
        """Outputs a channel of matrix number ``matrix`` (padding included)."""
        return self.local_rows[matrix] * self.banks

    def groups(self) -> Iterator[list[Chunk]]:
        """The chunks of each group in execution order."""
        position = 0
        width = self.chunk if self.slices > 1 else self.columns
        for slice_, begin in enumerate(range(0, self.columns, width)):
            end = min(begin + width, self.columns)
            for first in range(0, self.total_rows, self.group):
                rows = min(self.group, self.total_rows - first)
                if self.choice.padded:
                    position = round_up(position, self.row_columns)
                chunks = []
                for column in range(begin, end, self.chunk):
                    columns = min(self.chunk, end - column)
                    chunks.append(Chunk(position, first, rows, column, columns, slice_ * self.total_rows + first))
                    position += rows * columns
                yield chunks

    def bursts(self, chunk: Chunk) -> Iterator[tuple[int, int, int, int, int]]:
        """``(DRAM row, column, buffer column, accumulator, count)`` of the chunk's bursts; none crosses a DRAM row."""
        position = chunk.position
        for accumulator in range(chunk.rows):
            done = 0
            while done < chunk.columns:
                column = position % self.row_columns
                count = min(chunk.columns - done, self.row_columns - column)
                yield self.first_row + position // self.row_columns, column, done, accumulator, count
                position += count
                done += count

    def pack(
        self, matrices: Sequence[npt.NDArray[np.float32]], image: npt.NDArray[np.uint16], image_row: int = 0
    ) -> None:
        """Write the matrices [M_i, K] (f32, rounded to bf16) into ``image``.

        ``image`` is [rows, channels, banks, row columns, lanes]; its first row is DRAM row ``image_row``.
        """
        locals_ = [self._local(matrix, index) for index, matrix in enumerate(matrices)]
        stacked = np.concatenate(locals_, axis=1)  # [channels, local rows, banks, columns, lanes]
        start = self.first_row - image_row
        view = image[start : start + self.dram_rows]
        for chunks in self.groups():
            for chunk in chunks:
                part = stacked[
                    :,
                    chunk.first_row : chunk.first_row + chunk.rows,
                    :,
                    chunk.first_column : chunk.first_column + chunk.columns,
                ]
                part = part.transpose(1, 3, 0, 2, 4).reshape(
                    chunk.rows * chunk.columns, self.channels, self.banks, self.lanes
                )
                position = np.arange(chunk.position, chunk.position + len(part))
                view[position // self.row_columns, :, :, position % self.row_columns] = part

    def _local(self, matrix: npt.NDArray[np.float32], index: int) -> npt.NDArray[np.uint16]:
        rows = self.local_rows[index]
        width = self.parts * self.columns * self.lanes
        padded = np.zeros((self.part_channels * rows * self.banks, width), dtype=np.uint16)
        padded[: matrix.shape[0], : matrix.shape[1]] = f32_to_bf16_bits(matrix)
        apart = padded.reshape(self.part_channels, rows, self.banks, self.parts, self.columns, self.lanes)
        return np.moveaxis(apart, 3, 0).reshape(self.channels, rows, self.banks, self.columns, self.lanes)


def place_weights(
    machine: Machine,
    names: Sequence[str],
    outputs: Sequence[int],
    k: int,
    first_row: int,
    choice: GemvChoice | None = None,
) -> WeightStream:
    """Place matrices [M_i, K] from ``first_row`` on, by default as :func:`~wordline.compiler.choices.plain_gemv`.

    The parts of ``choice`` must divide the channels and the columns of K.
    """
    o = machine.organisation
    choice = choice or plain_gemv(machine)
    return WeightStream(
        tuple(names),
        tuple(outputs),
        k,
        tuple(ceil_div(m, o.banks * (o.channels // choice.parts)) for m in outputs),
        choice,
        first_row,
        ceil_div(k, machine.bank_unit.lanes) // choice.parts,
        o.column_bytes,
        o.columns,
        machine.bank_unit.lanes,
        o.banks,
        o.channels,
    )


@dataclass(frozen=True, slots=True)
class ParameterPlace:
    """A vector parameter: ``elements`` float32 values in ``columns`` columns of bank ``bank``.

    ``shard``: elements of each channel, in channel order; None: every channel has all of them.
    """

    name: str
    elements: int
    shard: int | None
    row: int
    bank: int
    column: int
    columns: int


class ParameterRows:
    """Packs vector parameters into columns: along a row of bank 0, then bank 1, ..., then the next row.

    A parameter may span rows of one bank only if it starts at column 0; it otherwise moves to the next bank.
    """

    def __init__(self, machine: Machine, first_row: int) -> None:
        self._o = machine.organisation
        self.first_row = first_row
        self._row, self._bank, self._column = first_row, 0, 0
        self._tall = first_row
        self.places: dict[str, ParameterPlace] = {}

    @property
    def rows(self) -> int:
        """DRAM rows used so far."""
        used = self._row + (1 if self._bank or self._column else 0)
        return max(used, self._tall) - self.first_row

    def add(self, name: str, elements: int, shard: int | None = None) -> ParameterPlace:
        """Place a parameter of ``elements`` float32 values, ``shard`` of them in each channel (None: all in each)."""
        columns = ceil_div((elements if shard is None else shard) * 4, self._o.column_bytes)
        if self._column + columns > self._o.columns:
            self._next_bank()
        if columns > self._o.columns:
            if self._bank or self._row < self._tall:
                self._row, self._bank = max(self._row + 1, self._tall), 0
            place = ParameterPlace(name, elements, shard, self._row, 0, 0, columns)
            self._row += ceil_div(columns, self._o.columns)
        else:
            place = ParameterPlace(name, elements, shard, self._row, self._bank, self._column, columns)
            self._column += columns
        self._tall = max(self._tall, self._row)
        self.places[name] = place
        return place

    def _next_bank(self) -> None:
        self._column = 0
        self._bank += 1
        if self._bank == self._o.banks:
            self._bank, self._row = 0, self._row + 1

    def pack(
        self, name: str, values: npt.NDArray[np.float32], image: npt.NDArray[np.uint16], image_row: int = 0
    ) -> None:
        """Write a parameter into ``image`` [rows, channels, banks, row columns, lanes], first row ``image_row``."""
        place = self.places[name]
        o = self._o
        flat = values.reshape(-1)
        width = place.columns * o.column_bytes // 4
        padded = np.zeros((o.channels, width), dtype=np.float32)
        if place.shard is None:
            padded[:, : place.elements] = flat
        else:
            spread = np.zeros(o.channels * place.shard, dtype=np.float32)
            spread[: place.elements] = flat
            padded[:, : place.shard] = spread.reshape(o.channels, place.shard)
        columns = padded.view(np.uint16).reshape(o.channels, place.columns, -1)
        position = place.column + np.arange(place.columns)
        rows = place.row - image_row + position // o.columns
        image[rows, :, place.bank, position % o.columns] = columns.swapaxes(0, 1)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """KV pages: ``page_tokens`` tokens of one layer's K and V for one KV head on one channel: K rows, then V rows.

    K: token t in bank ``t % banks``, its head columns from ``(t // banks) * head_columns``. V is transposed:
    dimension d in bank ``d % banks``, token t in column ``(d // banks) * token_columns + t // lanes``, lane ``t %
    lanes``. Page p of head h is on channel ``(p * groups + h) % channels``: channels c with equal ``c % groups`` form a
    group, and a head's pages go around the ``spread`` channels of its group.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_tokens: int
    rows_per_side: int
    pages_per_channel: int
    channels: int
    groups: int
    banks: int
    lanes: int
    row_columns: int

    @property
    def head_columns(self) -> int:
        """Columns of one token's K."""
        return self.head_dim // self.lanes

    @property
    def token_columns(self) -> int:
        """Columns of one dimension of V."""
        return self.page_tokens // self.lanes

    @property
    def rows_per_page(self) -> int:
        """DRAM rows of a page, in every bank of its channel."""
        return 2 * self.rows_per_side

    @property
    def table_words(self) -> int:
        """Words of the page table."""
        return self.layers * self.kv_heads * self.pages_per_channel * self.spread

    @property
    def spread(self) -> int:
        """Channels among which the pages of a head are divided."""
        return self.channels // self.groups

    @property
    def rounds(self) -> int:
        """Heads of each group of channels."""
        return self.kv_heads // self.groups

    def rows_per_channel(self) -> int:
        """Rows of every channel that a full context takes."""
        return self.layers * self.rounds * self.pages_per_channel * self.rows_per_page

    def entry(self, layer: int, head: int) -> int:
        """Page-table index of (layer, head), its page 0 on channel ``head % groups``; a local page adds ``spread``, the
        next channel of the group 1.
        """
        return (layer * self.kv_heads + head) * self.pages_per_channel * self.spread


def page_numbers(kv: KVLayout) -> npt.NDArray[np.int64]:
    """A number for every word of the page table, such that pages on one channel have different ones, from 0 up."""
    rounds = np.arange(kv.layers * kv.kv_heads, dtype=np.int64)[:, None] // kv.groups
    local = rounds * kv.pages_per_channel + np.arange(kv.pages_per_channel)
    return np.repeat(local.reshape(-1), kv.spread)


def place_kv(
    machine: Machine, layers: int, kv_heads: int, head_dim: int, max_context: int, *, groups: int = 1
) -> KVLayout:
    """KV layout for a model, with the channels in ``groups`` (a power of two that divides ``kv_heads``).

    Raises ``WordlineError("kv-layout")`` for head sizes or machines that the page layout does not cover.
    """
    o, lanes = machine.organisation, machine.bank_unit.lanes
    if not is_power_of_two(o.channels):
        raise WordlineError(
            "kv-layout",
            f"KV pages need a power of two of channels, {machine.name} has {o.channels}",
            where="organisation.channels",
        )
    if not is_power_of_two(head_dim) or head_dim < max(lanes, o.banks):
        raise WordlineError(
            "kv-layout",
            f"KV pages hold head sizes that are powers of two from {max(lanes, o.banks)} up; this model has {head_dim}",
            where="attention",
            remedy="use a model with such a head size",
        )
    row_elements = o.columns * lanes * o.banks
    page = max(o.banks, row_elements // head_dim)
    return KVLayout(
        layers,
        kv_heads,
        head_dim,
        page,
        ceil_div(page * head_dim, row_elements),
        ceil_div(max_context, page * (o.channels // groups)),
        o.channels,
        groups,
        o.banks,
        lanes,
        o.columns,
    )
