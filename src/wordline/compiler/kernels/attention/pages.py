"""A channel's walk over the pages of its head, arranged so that register-mode visits hide under row turns.

After the last MAC of a page the next page's row is opened, and after the last page of a task the first row of the
channel's next task of this attention, before registers are read and written.
"""

from __future__ import annotations

from dataclasses import dataclass

from wordline.compiler.arguments import PAGE_TABLE
from wordline.compiler.choices import WHOLE, Cuts
from wordline.compiler.integers import floor_log2
from wordline.compiler.kernel.builder import CHANNEL, LATE, Builder, turn_row
from wordline.compiler.kernel.ir import command
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, linear
from wordline.compiler.kernels.attention.shape import (
    AttentionShape,
    bound,
    pages_in_use,
    turns_in_use,
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The pages that one task of a channel works on.

    Attributes:
        round: which of the channel group's KV heads.
        cuts: how the pages are divided.
        part: which part.
        first_row: the DRAM row of a page, from its first one, that the task reads first.
        query: the one query head of the KV head that is meant; None: all.
    """

    round: int
    cuts: Cuts = WHOLE
    part: int = 0
    first_row: int = 0
    query: int | None = None

    @property
    def begins(self) -> bool:
        return self.part == 0

    @property
    def ends(self) -> bool:
        return self.part == len(self.cuts) - 1


class Pages:
    """Scalars of a channel stream: where the pages of its heads are, and how many."""

    def __init__(self, b: Builder, shape: AttentionShape) -> None:
        kv = shape.kv
        self.b, self.shape = b, shape
        self.position, self.pages = pages_in_use(b, shape)
        self.turns = turns_in_use(b, shape, self.pages)
        # Channels with equal number modulo `groups` form a group; a member is a channel's place in its group.
        self.group = linear(0) if kv.groups == 1 else linear(CHANNEL)
        self.member = linear(CHANNEL) if kv.groups == 1 else linear(0)
        if kv.groups > 1 and kv.spread > 1:
            self.group = linear(b.calc("AND", CHANNEL, kv.groups - 1, "group"))
            self.member = linear(b.calc("SHR", CHANNEL, floor_log2(kv.groups), "member"))
        table = b.argument(PAGE_TABLE, "table")
        self.table = b.calc(
            "ADD", linear(table) + self.group * (kv.pages_per_channel * kv.spread), self.member, "entries"
        )

    def head(self, round_: int) -> Linear:
        """Number of the KV head of a round."""
        return self.group + round_ * self.shape.kv.groups

    def local(self, round_: int) -> Register:
        """How many pages of the round's head the channel has: page p is with member (p + round) % spread."""
        spread = self.shape.kv.spread
        if spread == 1:
            return self.pages
        first = self.b.calc("AND", self.member - round_, spread - 1, "first_page")
        return self.b.calc("SHR", linear(self.pages) - first + (spread - 1), floor_log2(spread), "local_pages")

    def newest(self, round_: IntLike) -> Register:
        """Local number of the page that the step's token goes to, -1 in channels that do not have it."""
        b, spread = self.b, self.shape.kv.spread
        if spread == 1:
            return b.calc("SUB", self.pages, 1, "newest")
        holder = b.calc("AND", linear(self.pages) - 1 + round_, spread - 1, "holder")
        own = b.calc("EQ", holder, self.member, "own")
        # Pages below the newest one are in whole turns, so this is its local number plus one.
        number = b.calc("MUL", own, self.turns, "number")
        return b.calc("SUB", number, 1, "newest")

    def address(self, round_: int, page: IntLike) -> Linear:
        """Word of controller memory with the first row of a local page."""
        return linear(self.table) + linear(page) * self.shape.kv.spread + self.shape.entries(round_)

    def load(self, stretch: Stretch, first: IntLike, hint: str) -> Register:
        """First DRAM row of local page ``first`` of a stretch; of an empty one, of any page with a table entry."""
        if first != 0:
            first = self.b.calc("MIN", first, self.shape.kv.pages_per_channel - 1, "start")
        return self.b.load(self.address(stretch.round, first), hint)


class Walk:
    """The loop over the pages of a stretch.

    ``late``: refreshes between pages are put off as long as they may be, not paid ahead.

    Attributes:
        first: local number of the first page.
        count: how many there are; not positive if there are none.
        row: register with the first DRAM row of the current page.
    """

    def __init__(self, pages: Pages, stretch: Stretch, following: Stretch | None, *, late: bool = False) -> None:
        self.pages, self.stretch, self.following = pages, stretch, following
        self.refresh = command("REF", None, {"when": LATE}) if late else command("REF")
        b = pages.b
        self.first = bound(b, pages.turns, stretch.cuts, stretch.part)
        local = pages.local(stretch.round)
        if stretch.cuts == WHOLE:
            self.end, self.count = linear(local), local
        else:
            end = local
            if not stretch.ends:
                end = b.calc("MIN", bound(b, pages.turns, stretch.cuts, stretch.part + 1), local, "end")
            self.end, self.count = linear(end), b.calc("SUB", end, self.first, "count")
        self.row = pages.load(stretch, self.first, "row")

    def open(self, refresh: bool) -> None:
        """Open the first row, if no earlier task has; ``refresh``: if one can be paid ahead, do."""
        if refresh:
            self.pages.b.extend(turn_row(linear(self.row) + self.stretch.first_row))
        else:
            self.pages.b.emit("ACT16", row=linear(self.row) + self.stretch.first_row)

    def turn(self, page: Linear) -> None:
        """After the MACs of ``page``: open what comes next."""
        b, ahead = self.pages.b, self.following
        more = b.calc("LT", page + 1, self.end, "more")
        address = self.pages.address(self.stretch.round, page + 1)
        if ahead is None:
            with b.loop(more):
                b.extend((command("PREA"), self.refresh, command("LDM", self.row, None, address=address)))
                b.emit("ACT16", row=linear(self.row) + self.stretch.first_row)
            return
        last = b.calc("SUB", 1, more, "last")
        b.extend((command("PREA"), self.refresh))
        with b.loop(more):
            b.extend([command("LDM", self.row, None, address=address)])
        with b.loop(last):
            self._load_following(ahead)
        b.emit("ACT16", row=linear(self.row) + self.stretch.first_row)

    def leave(self) -> None:
        """Without a page, open what comes next all the same: it may be written to, bank by bank.

        Not where the pages are divided: there V is written by a task of its own, and instructions are many.
        """
        if self.following is not None and self.stretch.cuts == WHOLE:
            b = self.pages.b
            with b.loop(b.calc("LT", self.count, 1, "idle")):
                self._load_following(self.following)
                b.extend(turn_row(linear(self.row) + self.stretch.first_row))

    def _load_following(self, ahead: Stretch) -> None:
        """The row that the following stretch reads first, less the offset of this one's rows."""
        b = self.pages.b
        first = bound(b, self.pages.turns, ahead.cuts, ahead.part)
        row = self.pages.load(ahead, first, "next_row")
        b.extend([command("ADD", self.row, None, a=row, b=ahead.first_row - self.stretch.first_row)])
