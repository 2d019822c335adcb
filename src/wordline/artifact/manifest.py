"""The records of ``manifest.json``: what is in an artifact, where, and how the runtime drives it.

All sizes are bytes unless a name says rows, words or tokens; rows are DRAM rows, which exist in every bank of every
channel (one row of the device is ``channels * banks * columns * column_bytes`` bytes).
"""

from __future__ import annotations

from dataclasses import dataclass

from wordline.isa.provenance import Range

SCHEMA = 4
MANIFEST, PROGRAM, WEIGHTS, TOKENIZER = "manifest.json", "program.bin", "weights.bin", "tokenizer.json"
ENTRY_ALIGNMENT = 64
"""Entry images start at multiples of this in ``program.bin``, so that they can be read as 64-bit words in place."""


class ArgumentNames:
    """Names of argument words that the runtime writes or reads, and the bits of ``flags``.

    An entry maps names to word indices. A 64-bit host address takes two words, low word first, from its index on.
    """

    TOKEN = "token"
    POSITION = "position"
    FLAGS = "flags"
    PAGE_TABLE_BASE = "page_table_base"
    LOGITS_ADDRESS = "logits_address"
    NEXT_TOKEN = "next_token"
    REQUIRED = (TOKEN, POSITION, FLAGS, PAGE_TABLE_BASE, LOGITS_ADDRESS, NEXT_TOKEN)
    ADDRESSES = (LOGITS_ADDRESS,)

    LOGITS_BIT = 0
    """Compute the logits and their argmax."""
    SEND_BIT = 1
    """Send the logits to the host as well."""
    FLAG_LOGITS = 1 << LOGITS_BIT
    FLAG_SEND = 1 << SEND_BIT


@dataclass(frozen=True)
class MachineRef:
    """The machine an artifact is for. ``name`` includes overrides and loads a shipped machine again."""

    name: str
    hash: str


@dataclass(frozen=True)
class ModelInfo:
    """The model. ``sha256`` is that of the source file, None for a config without weights.

    ``shape`` holds ``layers hidden ffn heads kv_heads head_dim vocab``: what the limits need.
    """

    name: str
    architecture: str
    source: str
    sha256: str | None
    parameters: int
    shape: dict[str, int]


@dataclass(frozen=True)
class Entry:
    """An entry point: its image in ``program.bin`` and its argument block."""

    offset: int
    bytes: int
    arguments: dict[str, int]
    argument_words: int
    provenance: tuple[Range, ...]


@dataclass(frozen=True)
class KvLayout:
    """The KV cache. A page: ``page_tokens`` tokens of one KV head on one channel, K then V, ``rows_per_page`` rows.

    Channels with equal ``channel % channel_groups`` form a group, and the pages of a head are in one group. The page
    table has a word for each layer, head, page of a channel, and channel of the head's group: the first row of the page
    there. Rows from ``first_row`` on may be used for pages.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_tokens: int
    rows_per_page: int
    pages_per_channel: int
    channel_groups: int
    first_row: int
    max_context: int

    def table_words(self, channels: int) -> int:
        """Words of the page table."""
        return self.layers * self.kv_heads * self.pages_per_channel * (channels // self.channel_groups)

    def channel(self, head: int, page: int, channels: int) -> int:
        """The channel that holds a head's page: heads start on different ones, pages go around the head's group."""
        return (page * self.channel_groups + head) % channels

    def table_index(self, layer: int, head: int, page: int, channels: int) -> int:
        """Which word of the page table is a page's."""
        spread = channels // self.channel_groups
        local = (layer * self.kv_heads + head) * self.pages_per_channel + page // spread
        return local * spread + self.channel(head, page, channels) // self.channel_groups


@dataclass(frozen=True)
class ScratchAllocation:
    """A buffer in scratch. ``first`` and ``last`` are the tasks (in program order) between which it is alive."""

    name: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class WeightPlacement:
    """A constant of the model in DRAM: ``rows`` rows from ``first_row``, in every bank."""

    name: str
    first_row: int
    rows: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Envelope:
    """What ``batch`` sequences of ``context`` tokens take: DRAM of the device in whole pages, and scratch of a channel.

    ``kv_rows`` are the rows of KV pages in the fullest channel.
    """

    batch: int
    context: int
    weight_bytes: int
    kv_bytes: int
    kv_rows: int
    scratch_bytes: int


@dataclass(frozen=True)
class MemoryMap:
    """Rows ``[0, weight_rows)`` hold ``weights.bin``; the rows after them are free for KV pages.

    ``envelope``: by ascending context, the last one is the longest that the artifact was compiled for.
    """

    weight_rows: int
    weights: tuple[WeightPlacement, ...]
    kv: KvLayout
    scratch: tuple[ScratchAllocation, ...]
    envelope: tuple[Envelope, ...]


LOGITS_BYTES = {"bf16": 2, "f32": 4}
"""Bytes of an element, by the formats that logits may have."""


@dataclass(frozen=True)
class LogitsOutput:
    """How logits arrive at the host: ``padded`` elements of ``dtype``; the first ``vocab`` count."""

    dtype: str
    vocab: int
    padded: int


@dataclass(frozen=True)
class TokenizerInfo:
    """What ``tokenizer.json`` does not say: the chat template, and ids with a meaning."""

    chat_template: str | None
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool


@dataclass(frozen=True)
class Searched:
    """What a search found for operations of one shape, timed alone on the cycle model.

    ``first`` is the cost model's choice, ``best`` the fastest of ``timed`` of ``candidates``; ``bound`` names the limit
    that ``bound_cycles`` is. ``dropped``: why the program does not use the best (None: it does).
    """

    first: str
    first_cycles: int
    best: str
    cycles: int
    bound: str
    bound_cycles: float
    timed: int
    candidates: int
    dropped: str | None


@dataclass(frozen=True)
class Chosen:
    """What the compiler chose for ``count`` operations of one shape; ``operation`` names them, layers as ``*``."""

    kind: str
    operation: str
    count: int
    shape: str
    choice: str
    search: Searched | None


@dataclass(frozen=True)
class SearchedStep:
    """Cycles of one step at each of ``contexts``, all together: of the program, and with the first choices."""

    contexts: tuple[int, ...]
    first_cycles: int
    cycles: int


@dataclass(frozen=True)
class Part:
    """Length and SHA-256 (hex) of a file of the artifact."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``, without its own digest. ``search``: None if the choices are the cost model's."""

    schema: int
    wordline_version: str
    generation: str
    machine: MachineRef
    model: ModelInfo
    entries: dict[str, Entry]
    memory: MemoryMap
    logits: LogitsOutput
    choices: tuple[Chosen, ...]
    search: SearchedStep | None
    tokenizer: TokenizerInfo | None
    parts: dict[str, Part]
