"""Device programs need not end: a signal handler that raises ends the run, wherever it computes."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.artifacts import ARGUMENT_WORDS, ARGUMENTS, tiny_contents
from wordline import _native
from wordline.artifact import EntryContents, write_artifact
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.machines import load_machine
from wordline.runtime import open_device
from wordline.sim.fault import Fault

ISA = instruction_set("gddr6-aim")
MACHINE = load_machine("gddr6-aim-chip")

PASS = """VPASS n0=1 n1=1 n2=65536 high=65536 {
  operands base=0 s2=2
  operations op=sin a=x0
  result base=0 s2=2 value=t0
}"""


def endless(stream: str, body: str) -> str:
    """A stream that would take many years."""
    loops = "".join(f"LOOP rd=r{2 + depth} count=8000000 {{\n" for depth in range(3))
    return f"stream {stream}\n{loops}{body}\n}}\n}}\n}}\n"


PROGRAMS = {
    "scalar": endless("channel mask=0x3", "ADD rd=r5 a=r5+1"),
    "nothing": endless("channel mask=0x1", ""),
    "bursts": endless("channel mask=0x3", "MAC16 count=64"),
    "passes": endless("vector", PASS),
    # The thread that can be asked (its streams: channel 0, vector, link) has ended, or waits for the other.
    "another thread": endless("channel mask=0x2", "ADD rd=r5 a=r5+1"),
    "waited for": endless("channel mask=0x2", "PREA")
    + "SIGNAL signal=3\nstream channel mask=0x1\nWAIT signal=3 value=1\nstream vector\nWAIT signal=3 value=1\n",
}


class Stop(Exception):  # noqa: N818  # a signal, not an error
    """What the handler raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Calls what it is given in a signal handler, 50 ms later and then every 50 ms."""

    def start(action: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda number, frame: action())
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)

    before = signal.getsignal(signal.SIGALRM)
    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def stop() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise Stop


def image(name: str) -> bytes:
    return assemble(ISA, PROGRAMS[name]).to_bytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(alarm: Callable[[Callable[[], None]], None], name: str, threads: int) -> None:
    model = _native.FunctionalModel(MACHINE.flat(), threads=threads)
    slot = model.load_program(image(name))
    start = time.monotonic()
    alarm(stop)
    with pytest.raises(Stop):
        model.execute(slot)
    assert time.monotonic() - start < 2
    other = model.load_program(assemble(ISA, "stream link\nADD rd=r2 a=1").to_bytes())
    model.execute(other)  # the model goes on


@pytest.mark.parametrize("name", PROGRAMS)
def test_cycles(alarm: Callable[[Callable[[], None]], None], name: str) -> None:
    model = _native.TimingModel(MACHINE.flat())
    slot = model.load_program(image(name))
    start = time.monotonic()
    alarm(stop)
    with pytest.raises(Stop):
        model.run(slot, 0, np.zeros(0, np.int32))
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_handler_that_returns_lets_the_run_go_on(alarm: Callable[[Callable[[], None]], None], threads: int) -> None:
    model = _native.FunctionalModel(MACHINE.flat(), threads=threads)
    slot = model.load_program(image("another thread"))
    calls: list[float] = []
    alarm(lambda: calls.append(time.monotonic()))
    with pytest.raises(Fault, match="instruction limit"):
        model.execute(slot, instruction_limit=200_000_000)
    assert len(calls) > 1, "it is called while the program runs"


def test_the_instruction_limit_is_exact() -> None:
    """Passes and shares between interruption points do not change what counts as an instruction."""
    text = f"stream vector\nLOOP rd=r2 count=50 {{\n{PASS}\nADD rd=r3 a=r3+1\nSTA index=0 value=r3\n}}"
    model = _native.FunctionalModel(MACHINE.flat(), threads=1)
    slot = model.load_program(assemble(ISA, text).to_bytes())
    for limit, stored in ((1, 0), (30, 9), (31, 10), (3 * 40 + 1, 40)):
        with pytest.raises(Fault, match="instruction limit"):
            model.execute(slot, instruction_limit=limit)
        assert model.cmem_read(0, 1)[0] == stored
        model.cmem_write(0, np.zeros(1, np.int32))
    model.execute(slot, instruction_limit=3 * 50 + 1)


@pytest.mark.parametrize("driver", ["sim", "null"])
def test_a_device_survives_by_a_reset(alarm: Callable[[Callable[[], None]], None], driver: str) -> None:
    device = open_device(f"{driver}:gddr6-aim-chip")
    program = device.load(image("bursts"))
    alarm(stop)
    with pytest.raises(Stop):
        device.queue.execute(program.slot, 0, device.mode()).wait()
    if driver == "sim":
        with pytest.raises(WordlineError, match="interrupted"):
            device.load(image("bursts"))
    device.reset()
    device.load(image("bursts"))


@pytest.mark.skipif(not hasattr(os, "setsid"), reason="needs POSIX signals")
@pytest.mark.parametrize("options", [(), ("--no-timing",), ("--device", "null", "--prompt-length", "3")])
def test_the_command_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    entry = EntryContents(image("another thread"), ARGUMENTS, ARGUMENT_WORDS)
    artifact = write_artifact(tmp_path / "t.wl", dataclasses.replace(tiny_contents(), entries={"decode": entry}))
    # Where the tests run in the background of a shell, SIGINT is ignored, and a child inherits that.
    code = (
        "import signal, sys\nfrom wordline.cli import main\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from wordline.runtime import queue\nstarted = queue.Queue.execute\n"
        "def execute(*a, **k):\n    print('running', flush=True)\n    return started(*a, **k)\n"
        "queue.Queue.execute = execute\nsys.exit(main())"
    )
    prompt = () if "--prompt-length" in options else ("--prompt", "abc")
    with subprocess.Popen(
        [sys.executable, "-c", code, "generate", str(artifact), *prompt, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "WORDLINE_THREADS": "2"},
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
