"""Device programs as traces: the same commands in the same order, and timed as the public simulator does."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.support.artifacts import tiny_contents
from tests.support.ticking_aim import tick
from tests.support.timing_programs import ins, program, random_program
from wordline.artifact import Artifact, open_artifact, write_artifact
from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine
from wordline.sim.timing import time_program
from wordline.sim.trace_export import export_artifact, export_program
from wordline.sim.traces import TraceModel

CHIP = load_machine("gddr6-aim-chip")
COLUMNS = {"MAC16", "MAC", "RD", "WR", "RDCP", "WRCP", "WRGB", "WRMAC16", "RDMAC16"}
RECORD = 10_000_000


def exported(*instrs: object, mask: int = 1, machine: Machine = CHIP) -> list[str]:
    image = program(instrs, mask=mask).to_bytes()  # type: ignore[arg-type]
    return export_program(machine, image, []).splitlines()  # type: ignore[arg-type]


def test_every_instruction() -> None:
    lines = exported(
        ins("ACT16", row=3),
        ins("MAC16", row=3, column=8, count=16, buffer=4, accumulator=2),
        ins("PREA"),
        ins("TMOD", mode=1),
        ins("WRGB", buffer=7, count=5),
        ins("WRMAC16", accumulator=1, count=3),
        ins("RDMAC16", accumulator=1, count=2),
        ins("MAC", bank=5, row=1, count=7),
        ins("RDCP", bank=6, row=2, count=8),
        ins("WRCP", bank=7, row=4, count=9),
        ins("RD", bank=8, row=5, count=2),
        ins("WR", bank=9, row=6, count=1),
        ins("WRE", bank=10, row=7),
        ins("REF"),
        mask=3,
    )
    assert lines == [
        "AiM MAC_ABK 16 0x3 3",
        "AiM WR_GB 5 0 0x3",
        *["AiM WR_BIAS 0 0x3"] * 3,
        *["AiM RD_MAC 0 0x3"] * 2,
        "AiM MAC_SBK 7 0x3 5 1",
        "AiM COPY_BKGB 8 0x3 6 2",
        "AiM COPY_GBBK 9 0x3 7 4",
        *["AiM RD_SBK 0 0x3 8 5"] * 2,
        "AiM WR_SBK 0 0x3 9 6",
        "AiM WR_SBK 0 0x3 10 7",
        "AiM EOC",
    ]


def test_masks_are_those_of_the_public_simulator() -> None:
    assert exported(ins("MAC16", row=0, count=1), mask=1)[0] == "AiM MAC_ABK 1 0x2 0"
    assert exported(ins("MAC16", row=0, count=1), mask=2)[0] == "AiM MAC_ABK 1 0x1 0"
    card = load_machine("gddr6-aim-card")
    assert exported(ins("MAC16", row=0, count=1), mask=1, machine=card)[0] == "AiM MAC_ABK 1 0x80000000 0"


def test_bursts_are_as_long_as_a_row_at_most() -> None:
    wide = load_machine("gddr6-aim-chip", {"buffer.columns": 160, "organisation.columns": 64})
    lines = exported(ins("WRGB", buffer=0, count=160), machine=wide)
    assert lines == ["AiM WR_GB 64 0 0x2", "AiM WR_GB 64 0 0x2", "AiM WR_GB 32 0 0x2", "AiM EOC"]


def test_waits_are_one_sync() -> None:
    lines = exported(
        ins("SIGNAL", signal=0),
        ins("WAIT", signal=0, value=1),
        ins("MAC16", row=0, count=1),
        ins("SIGNAL", signal=0),
        ins("WAIT", signal=0, value=2),
        ins("WAIT", signal=0, value=2),
        ins("MAC16", row=0, count=2),
    )
    assert lines == ["AiM MAC_ABK 1 0x2 0", "AiM SYNC", "AiM MAC_ABK 2 0x2 0", "AiM EOC"]


def test_random_programs() -> None:
    """Per channel, the trace has the column and register commands of the program, in their order."""
    for seed in range(60):
        memory = [(seed * 7 + i * 3) % 5 for i in range(8)]
        device_program = random_program(seed)
        issued = time_program(CHIP, device_program, memory, trace=True).trace
        text = export_program(CHIP, device_program.to_bytes(), memory)  # type: ignore[arg-type]
        again = TraceModel(CHIP, "corrected").run(text.encode(), record=RECORD).schedule
        for channel in range(2):
            ours = [(e.command, e.bank, e.row) for e in issued if e.channel == channel and e.command in COLUMNS]
            theirs = [(e.command, e.bank, e.row) for e in again if e.channel == 1 - channel and e.command in COLUMNS]
            assert ours == theirs, seed


def test_comments_stay_comments() -> None:
    image = program([ins("MAC16", row=0, count=1)]).to_bytes()
    text = export_program(CHIP, image, [], comments=["two\nlines", "AiM EOC"])  # type: ignore[arg-type]
    assert text == "# two lines\n# AiM EOC\nAiM MAC_ABK 1 0x2 0\nAiM EOC\n"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = write_artifact(tmp_path_factory.mktemp("export") / "tiny.wl", tiny_contents())
    return open_artifact(path)


def test_an_artifact(tiny: Artifact) -> None:
    text = export_artifact(tiny, "decode", {"token": 3, "position": 700, "flags": 0})
    assert text.splitlines()[1:] == [
        f"# device program for machine {CHIP.name} ({CHIP.hash[:12]})",
        *["AiM RD_SBK 0 0x3 0 0"] * 2,
        "AiM EOC",
    ]
    assert text.startswith("# tiny, entry decode: token=3, position=700, flags=0\n")


@pytest.mark.parametrize(
    ("arguments", "what", "remedy"),
    [
        ({"tokens": 3}, "there is no argument 'tokens'", "token, position, flags"),
        ({"page_table_base": 3}, "there is no argument 'page_table_base'", "token, position, flags"),
        ({"token": 20}, "token is 20", "from 0 to 19"),
        ({"position": -1}, "position is -1", "from 0 to 999"),
    ],
)
def test_bad_arguments(tiny: Artifact, arguments: dict[str, int], what: str, remedy: str) -> None:
    with pytest.raises(WordlineError) as caught:
        export_artifact(tiny, "decode", arguments)
    assert (caught.value.code, caught.value.what) == ("bad-argument", what)
    assert remedy in str(caught.value.remedy)


def test_a_decode_step(smollm2_artifact: Artifact) -> None:
    text = export_artifact(smollm2_artifact, "decode", {"position": 300, "token": 5})
    statements = [line.split() for line in text.splitlines() if "MAC_ABK" in line]
    macs = sum(int(size) * int(channels, 16).bit_count() for _, _, size, channels, *_ in statements)
    assert macs > 500_000
    for profile in ("aim-simulator", "corrected"):
        time = TraceModel(CHIP, profile).run(text.encode())
        assert time.commands["MAC16"] == macs
        assert time.cycles > macs // 2 * 2
    head = [*islice((line for line in text.splitlines() if not line.startswith("#")), 2500), "AiM EOC", ""]
    short = "\n".join(head)
    assert TraceModel(CHIP, "aim-simulator").run(short.encode()).cycles == tick(CHIP, short).cycles


@pytest.mark.slow
def test_a_whole_decode_step_against_ticking(smollm2_artifact: Artifact) -> None:
    text = export_artifact(smollm2_artifact, "decode", {"position": 300, "token": 5})
    time = TraceModel(CHIP, "aim-simulator").run(text.encode())
    assert time.cycles == tick(CHIP, text, limit=5_000_000).cycles
