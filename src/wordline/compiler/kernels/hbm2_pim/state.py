"""The mode and the CRF of a pseudo-channel as values: what is set already is not set again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.compiler.kernel.ir import Item, command
from wordline.isa.hbm2_pim.bank import CRF_COLUMN_ENTRIES, MODES
from wordline.isa.hbm2_pim.crf_program import assemble_crf
from wordline.isa.instruction import Instr

EVEN, ODD = 0, 1
SINGLE, ALL_BANK, PIM = range(len(MODES))


@dataclass
class ChannelState:
    """What a stream has set so far. A submission starts in single-bank mode and knows nothing of the CRF.

    Registers go through odd banks, as everywhere in these kernels. With ``forgetful`` nothing is remembered but the
    mode: the stream that results is what the remembered state is compared with.
    """

    mode: int = SINGLE
    crf: tuple[int | None, ...] = ()
    forgetful: bool = False

    def single(self) -> list[Item]:
        """To single-bank mode."""
        return self._to(SINGLE)

    def start(self, program: Sequence[Instr]) -> list[Item]:
        """Have the CRF hold ``program``, and start it: only columns that differ are written."""
        words = assemble_crf(program)
        words += [0] * (-len(words) % CRF_COLUMN_ENTRIES)
        items: list[Item] = []
        known = () if self.forgetful else self.crf
        changed = [
            first
            for first in range(0, len(words), CRF_COLUMN_ENTRIES)
            if tuple(words[first : first + CRF_COLUMN_ENTRIES]) != known[first : first + CRF_COLUMN_ENTRIES]
        ]
        if self.mode == SINGLE:
            items += self._to(ALL_BANK)
        for first in changed:
            entries = tuple(words[first : first + CRF_COLUMN_ENTRIES])
            fields: dict[str, int | tuple[int, ...]] = {
                "parity": ODD,
                "column": first // CRF_COLUMN_ENTRIES,
                "program": entries,
            }
            items.append(command("WRCRF", None, fields))
        self.crf = (*words, *self.crf[len(words) :])
        items.append(command("MODE", None, {"mode": PIM, "parity": ODD}))
        self.mode = PIM
        return items

    def _to(self, mode: int) -> list[Item]:
        if mode == self.mode and not self.forgetful:
            return []
        self.mode = mode
        return [command("MODE", None, {"mode": mode, "parity": ODD})]
