"""Profile `aim-simulator` equals what the public simulator printed: every table of tests/reference/gddr6-aim."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.gemv_traces import gemv_trace
from tests.support.micro_traces import FOLDER, micro_schedules
from tests.support.reference import reference_rows
from tests.support.ticking_aim import tick
from wordline.machines import load_machine
from wordline.sim.traces import TraceModel, time_trace

CARD = load_machine("gddr6-aim-card")
MODEL = TraceModel(CARD, "aim-simulator")
MICRO = reference_rows("gddr6-aim/micro_cycles.csv")
GEMV = reference_rows("gddr6-aim/gemv_cycles.csv")
REFRESH = reference_rows("gddr6-aim/refresh_cycles.csv")
RECORD = 10_000_000


def micro_path(name: str) -> Path:
    return FOLDER / "micro_traces" / f"micro_{name}.trace"


def refresh_text(name: str) -> bytes:
    if name.startswith("micro_"):
        return micro_path(name.removeprefix("micro_")).read_bytes()
    _, outputs, inputs, channels, order = name.split("_")
    return gemv_trace(int(outputs[3:]), int(inputs[2:]), int(channels[2:]), order.removesuffix("major")).encode()


def test_no_table_was_lost() -> None:
    assert (len(MICRO), len(GEMV), len(REFRESH)) == (47, 31, 12)
    assert set(micro_schedules()) == {row["trace"] for row in MICRO}


@pytest.mark.parametrize("row", MICRO, ids=lambda row: row["trace"])
def test_micro_traces(row: dict[str, str]) -> None:
    path = micro_path(row["trace"])
    time = MODEL.run(path.read_bytes(), record=RECORD)
    assert time.cycles == int(row["total_cycles"])
    assert dict(time.commands) == {name: int(n) for name, n in (e.split(":") for e in row["dram_commands"].split())}
    mine = [(e.cycle, e.command, e.bank) for e in time.schedule if e.channel == 31]
    assert mine == micro_schedules()[row["trace"]]


@pytest.mark.parametrize("folder", ["random_traces", "random_traces2"])
def test_random_traces(folder: str) -> None:
    rows = reference_rows(f"gddr6-aim/{folder}/cycles.csv")
    assert len(rows) >= 40
    for row in rows:
        time = time_trace(CARD, "aim-simulator", FOLDER / folder / row["trace"])
        assert (row["trace"], time.cycles) == (row["trace"], int(row["total_cycles"]))
        assert time.lines == int(row["lines"])


@pytest.mark.parametrize("row", GEMV, ids=lambda r: f"{r['out_rows']}x{r['in_cols']}-{r['channels']}-{r['order']}")
def test_gemv(row: dict[str, str]) -> None:
    channels = int(row["channels"])
    time = MODEL.run(gemv_trace(int(row["out_rows"]), int(row["in_cols"]), channels, row["order"]).encode())
    assert time.lines == int(row["trace_lines"])
    assert time.cycles == int(row["total_cycles"])
    assert time.channels == tuple(range(32 - channels, 32))
    assert time.simulated_channels == (1 if channels == 32 else 2)


@pytest.mark.parametrize("row", REFRESH, ids=lambda row: f"{row['trace']}-{row['nRFC']}-{row['nREFI']}")
def test_repaired_refresh(row: dict[str, str]) -> None:
    repaired = {"aim_simulator.refresh": True, "timing.nRFC": row["nRFC"], "timing.nREFI": row["nREFI"]}
    model = TraceModel(load_machine("gddr6-aim-card", repaired), "aim-simulator")
    time = model.run(refresh_text(row["trace"]), record=RECORD)
    assert time.cycles == int(row["cycles_with_refresh_fixed"])
    counts = Counter((e.channel, e.command) for e in time.schedule)
    assert counts[31, "REFab"] == int(row["REFab_on_ch31"])


def test_a_refresh_in_register_mode() -> None:
    model = TraceModel(load_machine("gddr6-aim-card", {"aim_simulator.refresh": True}), "aim-simulator")
    time = model.run(gemv_trace(4096, 4096, 32, "out").encode(), record=RECORD)
    around = [(e.command, e.cycle) for e in time.schedule if e.channel == 0 and 3330 <= e.cycle <= 3429]
    assert around == [("WRGB", 3330), ("TMOD", 3332), ("PREA", 3364), ("REFab", 3396), ("TMOD", 3397), ("WRGB", 3429)]


@pytest.mark.parametrize(
    ("lines", "cycles"),
    [
        (["AiM MAC_ABK 1 0x1 0", "AiM MAC_SBK 1 0x1 0 1", "AiM COPY_GBBK 1 0x1 0 0", "AiM MAC_ABK 1 0x1 0"], 259),
        (["AiM RD_SBK 0 0x1 0 0", "AiM RD_SBK 0 0x1 0 0", "AiM RD_MAC 0 0x1"], 94),
        (["AiM WR_SBK 0 0x1 0 0", "AiM WR_SBK 0 0x1 0 1", "AiM RD_SBK 0 0x1 3 9"], 104),
    ],
)
def test_pins(lines: list[str], cycles: int) -> None:
    text = "\n".join([*lines, "AiM EOC", ""])
    time = MODEL.run(text.encode(), record=RECORD)
    assert time.cycles == cycles
    assert [tuple(e) for e in time.schedule] == tick(CARD, text).trace


def test_a_vanished_read_and_a_forced_precharge() -> None:
    text = b"AiM WR_SBK 0 0x1 0 0\nAiM WR_SBK 0 0x1 0 1\nAiM RD_SBK 0 0x1 3 9\nAiM EOC\n"
    schedule = [(e.command, e.cycle) for e in MODEL.run(text, record=RECORD).schedule]
    assert schedule == [("ACT", 0), ("WR", 28), ("PRE", 69), ("ACT", 101)]


def test_the_ticking_model_equals_the_tables() -> None:
    for row in MICRO:
        if row["trace"] != "long_mac_8000col":
            assert tick(CARD, micro_path(row["trace"]).read_text()).cycles == int(row["total_cycles"])
    for row in reference_rows("gddr6-aim/random_traces2/cycles.csv"):
        assert tick(CARD, (FOLDER / "random_traces2" / row["trace"]).read_text()).cycles == int(row["total_cycles"])


@pytest.mark.slow
def test_the_ticking_model_equals_the_long_tables() -> None:
    for row in reference_rows("gddr6-aim/random_traces/cycles.csv"):
        assert tick(CARD, (FOLDER / "random_traces" / row["trace"]).read_text()).cycles == int(row["total_cycles"])
    for row in REFRESH[:1]:
        repaired = {"aim_simulator.refresh": True, "timing.nRFC": row["nRFC"], "timing.nREFI": row["nREFI"]}
        machine = load_machine("gddr6-aim-card", repaired)
        wanted = int(row["cycles_with_refresh_fixed"])
        assert tick(machine, refresh_text(row["trace"]).decode()).cycles == wanted
