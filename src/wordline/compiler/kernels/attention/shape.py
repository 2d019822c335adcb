"""What the attention kernels share: sizes of one layer's attention, how channels and pages are divided, page counts."""

from __future__ import annotations

from dataclasses import dataclass

from wordline.compiler.arguments import POSITION
from wordline.compiler.choices import CUT, AttentionChoice, Cuts, HeadShape, Illegal
from wordline.compiler.integers import floor_log2, is_power_of_two
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.scratch import ELEMENT_BYTES
from wordline.compiler.kernel.symbols import IntLike, Register, linear
from wordline.compiler.layout import KVLayout, place_kv
from wordline.machines import Machine

BF16_BYTES = ELEMENT_BYTES["bf16"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One layer's attention.

    ``group`` query heads share each KV head; ``window`` limits how far back it sees (None: no limit). KV head ``round *
    kv.groups + g`` is the one that channel group g works on in a round.
    """

    kv: KVLayout
    layer: int
    group: int
    scale: float
    window: int | None

    @property
    def column_bytes(self) -> int:
        """A column of a bank, and what one accumulator of all banks is read out to."""
        return self.kv.lanes * BF16_BYTES

    @property
    def head_bytes(self) -> int:
        return self.kv.head_dim * BF16_BYTES

    @property
    def page_bytes(self) -> int:
        """Scores of one page for one query head, in one channel."""
        return self.kv.page_tokens * BF16_BYTES

    @property
    def score_bytes(self) -> int:
        """Scores of one query head in one channel, at full context."""
        return self.kv.pages_per_channel * self.page_bytes

    def queries(self, one: int | None) -> range:
        """Query heads of a KV head: one of them, or all."""
        return range(self.group) if one is None else range(one, one + 1)

    def entries(self, round_: int) -> int:
        """Page-table index of the layer's first KV head of a round."""
        return self.kv.entry(self.layer, round_ * self.kv.groups)


def floor_power_of_two(value: int) -> int:
    """The largest power of two up to ``value``, at least 1."""
    return 1 << floor_log2(max(1, value))


def pages_in_use(b: Builder, shape: AttentionShape) -> tuple[Register, Register]:
    """(position, number of pages in use)."""
    position = b.argument(POSITION, "position")
    last = b.calc("SHR", position, floor_log2(shape.kv.page_tokens), "last_page")
    return position, b.calc("ADD", last, 1, "pages")


def turns_in_use(b: Builder, shape: AttentionShape, pages: Register) -> Register:
    """Pages of a head in the channel that has most of them."""
    spread = shape.kv.spread
    return pages if spread == 1 else b.calc("SHR", linear(pages) + (spread - 1), floor_log2(spread), "turns")


def bound(b: Builder, turns: Register, cuts: Cuts, part: int) -> IntLike:
    """First local page of part ``part``, or the end of the last one, in the channel that has most pages."""
    if part == 0:
        return 0
    end = cuts[part - 1]
    return turns if end == CUT else b.calc("SHR", linear(turns) * end + (CUT - 1), floor_log2(CUT), "bound")


def merges_all_channels(machine: Machine, shape: AttentionShape) -> bool:
    """One pass adds the parts of all channels, so every channel delivers one, zeros if it holds no page."""
    return shape.kv.spread <= machine.vector_unit.max_operands


def partial_bytes(machine: Machine, shape: AttentionShape) -> int:
    """Bytes a channel of the ``partial`` buffer of a round."""
    kept = 0 if merges_all_channels(machine, shape) else shape.kv.head_dim * ELEMENT_BYTES["f32"]
    return shape.group * (shape.head_bytes + kept)


def vector_share(machine: Machine, group: int, head_dim: int) -> float:
    """Vector unit's time over banks' time in a long context: both passes over the scores, MACs, row turns, register
    commands.
    """
    kv, timing = place_kv(machine, 1, 1, head_dim, 1), machine.timing
    vector = 2 * group * kv.page_tokens * kv.channels / machine.vector_unit.lanes
    turn = timing.nRTP + timing.nRP + timing.nRCDRDMAC - timing.nCCDL
    macs = kv.rows_per_side * (group * kv.row_columns * timing.nCCDL + turn)
    registers = group * (2 * kv.page_tokens // kv.banks + kv.token_columns) * timing.nCCDS
    return vector / (2 * macs + registers)


VECTOR_BOUND = 0.6
"""Share of the vector unit from which on heads are cut into parts, so that it starts early and the banks end early."""
SINGLE_ROUND = 1.2
"""Share of the vector unit from which on nothing is gained by a second round: the banks wait for it anyway."""
ONE_ROUND: tuple[Cuts, Cuts] = ((2, 4, 6, 8, 12, 16), (6, 12, 16))
ROUNDS: tuple[Cuts, Cuts] = ((2, 4, 6, 8, 10, 12, 14, 16), (5, 10, 14, 16))
"""Where the vector unit takes most of the time: parts of the first round's scores, so that it starts early, and of the
last round's probabilities, so that the banks have little left to do when it ends. They are the fastest of those tried
for grouped queries, and for one query head a KV head, on 32 channels, that leave room for the instructions of 32
layers."""


def first_choice(machine: Machine, heads: HeadShape) -> AttentionChoice:
    """What the cost model chooses.

    The more groups of channels, the fewer share a head and the less there is to add up afterwards. A group has two
    heads at least, so that banks and vector unit overlap, unless the vector unit is what takes the time.
    """
    share = vector_share(machine, heads.group, heads.head_dim)
    groups = 1
    while illegal_groups(machine, heads, 2 * groups) is None and (heads.kv_heads > 2 * groups or share > SINGLE_ROUND):
        groups *= 2
    if share <= VECTOR_BOUND:
        return AttentionChoice(groups)
    if heads.kv_heads > groups:
        return AttentionChoice(groups, *ROUNDS)
    if heads.group > 1 and machine.organisation.channels // groups <= machine.vector_unit.max_operands:
        return AttentionChoice(groups, ONE_ROUND[0], query_by_query=True)
    return AttentionChoice(groups, *ONE_ROUND)


def illegal_groups(machine: Machine, heads: HeadShape, groups: int) -> Illegal | None:
    """Why the channels cannot be divided into so many groups, None if they can.

    Every group has the same number of heads, the scores of two rounds stay within half of the scratch, and the maxima
    and sums of the rounds in flight within the shared registers.
    """
    channels, shared = machine.organisation.channels, machine.command_processor.shared_registers
    if not is_power_of_two(groups) or groups > channels or heads.kv_heads % groups:
        return Illegal(f"{channels} channels and {heads.kv_heads} KV heads do not make {groups} groups", "equal groups")
    if groups == 1:
        return None
    rounds = heads.kv_heads // groups
    registers = (2 if rounds == 1 else 3) * groups * heads.group
    if registers > shared:
        return Illegal(f"maxima and sums take {registers} registers", "command_processor.shared_registers")
    kv = place_kv(machine, 1, heads.kv_heads, heads.head_dim, heads.max_context, groups=groups)
    scores = min(2, rounds) * heads.group * kv.pages_per_channel * kv.page_tokens * BF16_BYTES
    if 2 * scores > machine.scratch.bytes_per_channel:
        return Illegal(f"{scores} bytes of scores take more than half of the scratch", "scratch.bytes_per_channel")
    return None
