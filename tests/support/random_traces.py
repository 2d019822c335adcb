"""Random programs in the trace language, and machines that differ in what the profiles use."""

from __future__ import annotations

import random
from dataclasses import fields

from wordline.machines import Machine, load_machine
from wordline.machines.gddr6_aim import Timing

MASKS = (1, 2, 3, 0xF, 0xF, 0xF, 0x0)


def random_trace(rng: random.Random, *, channels: int = 4, lines: int = 24, ordinary: float = 0.35) -> str:
    """A trace of up to ``lines`` lines for a machine of ``channels`` channels; a share of ``ordinary`` accesses."""
    rows = rng.choice((1, 2, 3, 5))
    banks = rng.choice((1, 2, 4, 16))
    all_channels = (1 << channels) - 1
    text = []
    mix = rng.random() * 2 * ordinary
    for _ in range(rng.randrange(1, lines)):
        mask = hex(rng.choice(MASKS) & all_channels) if rng.random() < 0.7 else str(rng.randrange(all_channels + 1))
        bank, row = rng.randrange(banks), rng.randrange(rows)
        size = rng.choice((1, 1, 2, 3, 8, 33, 34, 35, 64, rng.randrange(1, 80)))
        if rng.random() < mix:
            choices = [
                f"AiM WR_SBK 0 {mask} {bank} {row}",
                f"AiM ISR_RD_SBK 0 {mask} {bank} {row}",
                f"W MEM {rng.randrange(channels)} {bank} {row}",
                f"R MEM {rng.randrange(channels)} {bank} {row}",
            ]
        else:
            choices = [
                f"AiM MAC_ABK {size} {mask} {row}",
                f"AiM MAC_ABK {size} {mask} {row}",
                f"AiM MAC_SBK {size} {mask} {bank} {row}",
                f"AiM COPY_BKGB {size} {mask} {bank} {row}",
                f"AiM COPY_GBBK {size} {mask} {bank} {row}",
                f"AiM EWMUL {size} {mask} {row}",
                f"AiM WR_GB {size} 0 {mask}",
                f"AiM WR_BIAS 0 {mask}",
                f"AiM RD_MAC 0 {mask}",
                f"AiM RD_AF 0 {mask}",
                f"AiM AF {mask}",
                f"AiM WR_ABK 0 {mask} {row}",
                f"W CFR 2 {rng.randrange(8)}",
                f"AiM EWADD {size} 0 0",
                "AiM SYNC",
                "R GPR 5",
            ]
        text.append(rng.choice(choices))
    return "\n".join([*text, "AiM EOC", ""])


def repeating_trace(rng: random.Random, *, channels: int = 4, longest: int = 40) -> str:
    """A trace of loops: blocks of lines again and again, whose rows stay, count up, alternate or are drawn."""
    text = []
    for _ in range(rng.randrange(1, 4)):
        mask = rng.choice((1, 1, 3, (1 << channels) - 1))
        other = rng.choice((mask, mask, mask, 2, (1 << channels) - 1))
        size, rows = rng.choice((1, 2, 8, 33, 40, 64)), rng.randrange(1, 4)
        block = []
        for _ in range(rng.randrange(1, 6)):
            block += rng.choice(
                [
                    [f"AiM MAC_ABK {size} {mask:#x} ROW"],
                    [f"AiM MAC_ABK {size} {mask:#x} ROW"],
                    [f"AiM EWMUL {size} {mask:#x} ROW"],
                    [f"AiM WR_BIAS 0 {other:#x}"] * rows,
                    [f"AiM WR_GB {size} 0 {other:#x}"],
                    [f"AiM RD_MAC 0 {other:#x}"] * rows,
                    [f"AiM AF {mask:#x}", f"AiM RD_AF 0 {mask:#x}"],
                    [rng.choice(("W GPR 1", "AiM EWADD 4 0 0", f"W CFR 2 {rng.randrange(3)}"))],
                    [rng.choice(("AiM SYNC", f"AiM RD_MAC 0 {mask:#x}"))],
                ]
            )
        if rng.random() < 0.1:
            block.append(rng.choice((f"AiM MAC_SBK 4 {mask:#x} 3 ROW", f"AiM WR_ABK 0 {mask:#x} ROW", "R MEM 0 3 ROW")))
        if rng.random() < 0.8:
            block.append(rng.choice((f"AiM RD_MAC 0 {mask:#x}", f"AiM RD_AF 0 {other:#x}", "AiM SYNC")))
        row = rng.choice((lambda n: 7, lambda n: n, lambda n: n // 2, lambda n: n % 2, lambda n: rng.randrange(2)))
        counter = 0
        for _ in range(rng.randrange(1, longest)):
            for line in block:
                text.append(line.replace("ROW", str(row(counter))))
                counter += "ROW" in line
    return "\n".join([*text, "AiM EOC", ""])


#: Intervals that both profiles use as they are in section ``timing``.
INTERVALS = sorted(
    {f.name for f in fields(Timing)} - {"nRRDS", "nRRDL", "nFAW", "nRFC", "nREFI", "nMAC2TMOD", "nCMD2TMOD"}
)


def random_simulator(rng: random.Random, channels: int = 4) -> Machine:
    """The card with ``channels`` channels, some intervals, queues and switches not the published ones."""
    settings: dict[str, int | float | bool] = {"organisation.channels": channels}
    base = load_machine("gddr6-aim-card")
    if rng.random() < 0.5:
        for name in rng.sample(INTERVALS, 5):
            published = getattr(base.timing, name)
            settings[f"timing.{name}"] = max(1, published + rng.randrange(-3, 12))
        settings["aim_simulator.nRRDS"] = rng.randrange(1, 12)
        settings["aim_simulator.nRRDL"] = rng.randrange(1, 12)
    if rng.random() < 0.5:
        settings["aim_simulator.refresh"] = True
        settings["timing.nREFI"] = rng.choice((700, 1000, 3333))
        settings["timing.nRFC"] = rng.choice((50, 210))
    if rng.random() < 0.5:
        settings["aim_simulator.queue_requests"] = rng.choice((1, 2, 5, 33))
        settings["aim_simulator.writes_to_stop"] = rng.choice((0.5, 1.0, 6.4))
        settings["aim_simulator.writes_to_start"] = rng.choice((6.4, 7.0, 25.6))
        for switch in ("blocking_reads", "read_forwarding", "overtaking", "reversed_mask"):
            settings[f"aim_simulator.{switch}"] = rng.random() < 0.5
    return load_machine("gddr6-aim-card", settings)
