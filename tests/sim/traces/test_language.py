"""The trace language: every form, what is accepted besides, what is refused and how, and files that mean harm."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.micro_traces import FOLDER
from tests.support.random_traces import random_trace
from tests.support.ticking_aim import tick
from wordline.errors import WordlineError
from wordline.machines import load_machine
from wordline.sim.traces import PROFILES, TraceModel, TraceTime, time_trace

CARD = load_machine("gddr6-aim-card")
MODELS = {profile: TraceModel(CARD, profile) for profile in PROFILES}


def run(*lines: str, profile: str = "aim-simulator") -> TraceTime:
    return MODELS[profile].run("\n".join([*lines, "AiM EOC", ""]).encode(), record=100_000)


def refused(*lines: str, profile: str = "aim-simulator") -> WordlineError:
    with pytest.raises(WordlineError) as caught:
        run(*lines, profile=profile)
    return caught.value


FORMS = {
    "AiM WR_SBK 0 0x1 3 7": {"ACT": 1},
    "AiM RD_SBK 0 0x1 3 7": {"ACT": 1},
    "AiM WR_GB 8 0 0x1": {"TMOD": 1, "WRGB": 8},
    "AiM WR_BIAS 0 0x1": {"TMOD": 1, "WRMAC16": 1},
    "AiM RD_MAC 0 0x1": {"TMOD": 1, "RDMAC16": 1},
    "AiM RD_AF 0 0x1": {"TMOD": 1, "RDAF16": 1},
    "AiM COPY_BKGB 4 0x1 3 7": {"ACT": 1, "RDCP": 4},
    "AiM COPY_GBBK 4 0x1 3 7": {"ACT": 1, "WRCP": 4},
    "AiM MAC_SBK 4 0x1 3 7": {"ACT": 1, "MAC": 4},
    "AiM MAC_ABK 4 0x1 7": {"ACT16": 1, "MAC16": 4},
    "AiM AF 0x1": {"ACT16": 1, "AF16": 1},
    "AiM EWMUL 4 0x1 7": {"ACT16": 1, "EWMUL16": 4},
    "AiM EWADD 4 0 1": {},
    "AiM WR_ABK 0 0x1 7": {"ACT16": 1, "WRA16": 1},
    "AiM SYNC": {},
    "W GPR 12": {},
    "R GPR 0x12": {},
    "W CFR 0 1": {},
    "R CFR 1 1": {},
    "W MEM 31 3 7": {"ACT": 1},
    "R MEM 31 3 7": {"ACT": 1},
    "# a comment": {},
}


@pytest.mark.parametrize("line", FORMS)
def test_every_form(line: str) -> None:
    assert dict(run(line).commands) == FORMS[line]


ALIKE = [
    "AiM ISR_MAC_SBK 4 0x1 3 7",
    "AiM  MAC_SBK\t4  1 0x3 0X7",
    "AiM, MAC_SBK, 4, 0x1, 3, 7",
    "AiM MAC_SBK 4 0x1 3 7 # a comment after the fields",
    "AiM MAC_SBK 4 0x1 3 7\r",
    "\n\n   \nAiM MAC_SBK 0x04 0x01 03 07   ",
]


@pytest.mark.parametrize("line", ALIKE)
def test_what_is_accepted_besides(line: str) -> None:
    assert run(line) == run("AiM MAC_SBK 4 0x1 3 7")


def test_the_end() -> None:
    plain = run("AiM MAC_ABK 4 0x1 7")
    text = b"AiM MAC_ABK 4 0x1 7\nAiM EOC"
    model = MODELS["aim-simulator"]
    assert model.run(text, record=100).cycles == plain.cycles
    assert model.run(text + b"\nwhatever follows\x00\xff", record=100).cycles == plain.cycles
    with pytest.raises(WordlineError) as caught:
        model.run(b"AiM MAC_ABK 4 0x1 7\n", "some.trace")
    assert (caught.value.where, caught.value.remedy) == ("some.trace", "add a last line 'AiM EOC'")
    with pytest.raises(WordlineError):
        model.run(b"")


def test_channels() -> None:
    """Bit i of a mask is channel 31 - i in the public simulator, channel i by our own rules; MEM is never turned."""
    assert run("AiM MAC_ABK 1 0x5 0").channels == (29, 31)
    assert run("AiM MAC_ABK 1 0x5 0", profile="corrected").channels == (0, 2)
    assert run("R MEM 2 0 0").channels == run("R MEM 2 0 0", profile="corrected").channels == (2,)
    straight = TraceModel(load_machine("gddr6-aim-card", {"aim_simulator.reversed_mask": False}), "aim-simulator")
    assert straight.run(b"AiM MAC_ABK 1 0x5 0\nAiM EOC\n").channels == (0, 2)
    chip = TraceModel(load_machine("gddr6-aim-chip"), "aim-simulator")
    assert chip.run(b"AiM MAC_ABK 1 0x1 0\nAiM EOC\n").channels == (1,)
    assert refused("AiM MAC_ABK 1 0x100000000 0").what == "channel_mask '0x100000000' is not valid"


def test_lines_that_address_nothing_take_a_cycle() -> None:
    for line in ("AiM MAC_ABK 4 0x0 0", "AiM MAC_ABK 0 0x1 0", "AiM RD_MAC 0 0", "W GPR 1", "AiM EWADD 64 0 0"):
        assert run(line, "AiM MAC_ABK 1 0x1 0").cycles == 60
        assert run(line, "AiM MAC_ABK 1 0x1 0", profile="corrected").cycles == 61
        assert run("AiM MAC_ABK 1 0x1 0", profile="corrected").cycles == 61


def test_the_function_of_af() -> None:
    assert [(e.command, e.row - 2**29) for e in run("AiM AF 1", "W CFR 2 3", "AiM AF 1", "R CFR 2 4").schedule] == [
        ("ACT16", 0),
        ("AF16", 0),
        ("PREA", 3),
        ("ACT16", 3),
        ("AF16", 3),
    ]


REFUSED = [
    ("AiM", "the line ends after AiM", "MAC_ABK, WR_BIAS"),
    ("AiM MAC_4BK 4 0x1 7", "'MAC_4BK' is not an AiM instruction", "MAC_ABK, WR_BIAS"),
    ("AiM ISR_ 4", "the line ends after AiM", "MAC_ABK"),
    ("AiM WR_AFLUT 4", "AiM WR_AFLUT is not supported", "any other instruction"),
    ("aim EOC", "'aim' does not begin a line", "AiM, W, R or #"),
    ("W", "the line ends after W", "GPR, CFR or MEM"),
    ("R RAM 0 0 0", "'RAM' cannot be accessed", "GPR, CFR or MEM after R"),
    ("R MEM 0 0", "MEM lacks its field row", "'R MEM channel bank row'"),
    ("W GPR", "GPR lacks its field id", "'W GPR id'"),
    ("W CFR 3 0", "there is no CFR 3", "0 (BROADCAST), 1 (EWMUL_BG) or 2 (AFM)"),
    ("W CFR 2", "CFR lacks its field data", "'W CFR id data'"),
    ("AiM MAC_ABK 4 0x1", "MAC_ABK lacks its field row", "'AiM MAC_ABK opsize channel_mask row'"),
    ("AiM MAC_ABK 4 0x1 0 0", "'0' follows the last field of MAC_ABK", "'AiM MAC_ABK opsize channel_mask row'"),
    ("AiM EOC 1", "'1' follows the last field of EOC", "'AiM EOC'"),
    ("AiM MAC_SBK 4 0x1 16 0", "bank '16' is not valid", "a bank of the machine"),
    ("R MEM 32 0 0", "channel '32' is not valid", "a channel of the machine"),
    ("AiM MAC_ABK 4x 0x1 0", "opsize '4x' is not valid", "a number of columns"),
    ("AiM MAC_ABK -1 0x1 0", "opsize '-1' is not valid", "a number of columns"),
    ("AiM MAC_ABK 0x 0x1 0", "opsize '0x' is not valid", "a number of columns"),
    ("AiM MAC_ABK 2147483648 0x1 0", "opsize '2147483648' is not valid", "a number of columns"),
    ("AiM MAC_ABK 1 0x1 99999999999999999999999999", "row '99999999999999999999999999' is not valid", "a row"),
    ("AiM MAC_ABK 1 0x1 0xffffffffffffffffffff", "row '0xffffffffffffffffffff' is not valid", "a row"),
    ("AiM \x1b[31m 1", "'?[31m' is not an AiM instruction", ""),
    ("A" * 100, "'" + "A" * 40 + "...' does not begin", "AiM"),
]


@pytest.mark.parametrize(("line", "what", "remedy"), REFUSED)
@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_refused(line: str, what: str, remedy: str, profile: str) -> None:
    error = refused("# first", line, profile=profile)
    assert error.code == "bad-trace"
    assert error.where == "trace:2"
    assert error.what.startswith(what)
    assert error.remedy is not None
    assert error.remedy.startswith("expected ")
    assert remedy in error.remedy


def test_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text("AiM SYNC\nAiM SINK\nAiM EOC\n")
    with pytest.raises(WordlineError) as caught:
        time_trace(CARD, "corrected", path)
    assert caught.value.where == f"{path}:2"


def test_an_unknown_profile() -> None:
    with pytest.raises(WordlineError, match="there is no timing profile 'correct'") as caught:
        TraceModel(CARD, "correct")
    assert caught.value.remedy == "choose one of aim-simulator, corrected"


def test_damaged_traces_are_refused_or_timed() -> None:
    """No crash and no other exception, whatever the bytes."""
    rng = random.Random(5)
    samples = [path.read_bytes() for path in sorted((FOLDER / "random_traces2").glob("*.trace"))[:8]]
    samples += [random_trace(rng, channels=32).encode() for _ in range(8)]
    outcomes = {"timed": 0, "bad-trace": 0}
    for _ in range(1500):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            action = rng.randrange(4)
            if action == 0:
                data[at] = rng.randrange(256)
            elif action == 1:
                del data[at : at + rng.randrange(1, 8)]
            elif action == 2:
                data[at:at] = rng.choice([b" ", b"\n", b"9", b"0x", b"-", b"\0", b"AiM ", b"#"])
            else:
                del data[at:]
                data += b"\n"
        for model in MODELS.values():
            try:
                model.run(bytes(data), record=rng.choice((0, 200_000)))
                outcomes["timed"] += 1
            except WordlineError as error:
                outcomes[error.code] = outcomes.get(error.code, 0) + 1
    assert outcomes.keys() <= {"timed", "bad-trace", "trace-too-long"}
    assert outcomes["timed"] > 50
    assert outcomes["bad-trace"] > 300


@pytest.mark.parametrize("profile", PROFILES)
def test_huge_sizes_take_no_time_and_no_memory(profile: str) -> None:
    huge = ["AiM MAC_ABK 2147483647 0xffffffff 1073741823", "AiM WR_GB 2147483647 9223372036854775807 1"]
    text = "\n".join([*huge, "AiM EOC", ""]).encode()
    start = time.perf_counter()
    cycles = MODELS[profile].run(text).cycles
    assert cycles > 8 * 10**9
    assert time.perf_counter() - start < 30  # seconds; issuing each command would take minutes
    with pytest.raises(WordlineError) as caught:
        MODELS[profile].run(text, record=10**6)
    assert caught.value.code == "trace-too-long"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_trace_beyond_all_measure_is_refused(profile: str) -> None:
    slow = load_machine("gddr6-aim-card", {"timing.nCCDS": 1000, "refresh.enabled": False})
    text = b"AiM MAC_ABK 2147483647 0xffffffff 0\n" * 40_000 + b"AiM EOC\n"
    with pytest.raises(WordlineError, match=r"more than 2\^56 cycles"):
        TraceModel(slow, profile).run(text)


HANGS = {
    # The row of a waiting read is closed for the MACs before it can be read, and opened again, for ever.
    "thrashing": {"timing.nRCDRD": 200},
    # The MACs open their row first; the read then waits for a precharge that its own waiting forbids.
    "blocked by itself": {"timing.nRCDRD": 200, "aim_simulator.nRRDS": 1000},
}


@pytest.mark.parametrize("case", HANGS)
@pytest.mark.parametrize("refresh", [False, True])
def test_a_trace_that_the_simulator_never_ends(case: str, refresh: bool) -> None:
    machine = load_machine("gddr6-aim-card", {**HANGS[case], "aim_simulator.refresh": refresh})
    text = b"AiM RD_SBK 0 0x1 0 0\nAiM MAC_ABK 4 0x1 1\nAiM EOC\n"
    with pytest.raises(WordlineError, match="would never end this trace: channel 31 cannot serve") as caught:
        TraceModel(machine, "aim-simulator").run(text)
    assert caught.value.where in {"trace:1", "trace:2"}
    small = load_machine(machine.name, {"organisation.channels": 1})
    with pytest.raises(AssertionError, match="does not end"):
        tick(small, text.decode(), limit=3000)
    assert MODELS["aim-simulator"].run(text).cycles > 0
