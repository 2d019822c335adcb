"""Every device behind the interface answers every descriptor alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.artifacts import ARGUMENTS, counting_program
from tests.support.python_sim import PythonSim
from wordline.machines import Machine, load_machine
from wordline.runtime.device_interface import Capability, Completion, ErrorCode, ExecuteFlag, Opcode, Register, Status
from wordline.runtime.driver import driver
from wordline.runtime.ring import ENTRIES, DeviceInterface, Ring

#: Two channels with rows of 2 KiB a bank, of every generation.
MACHINES = {
    "gddr6-aim": load_machine("gddr6-aim-chip"),
    "hbm2-pim": load_machine("hbm2-pim-stack", {"organisation.channels": 2, "organisation.columns": 64}),
}
CONNECT: dict[str, Callable[[Machine], DeviceInterface]] = {
    "sim": driver("sim").connect,
    "null": driver("null").connect,
    "reference": driver("reference").connect,
    "python": PythonSim,
}
DEVICES = [
    f"{name}:{generation}"
    for name in CONNECT
    for generation, machine in MACHINES.items()
    if machine.has_native or name == "reference"
]
BOTH = ExecuteFlag.FUNCTIONAL | ExecuteFlag.TIMING


class Bench:
    """A device with one host window of 256 KiB."""

    def __init__(self, name: str) -> None:
        connect, _, generation = name.partition(":")
        self.machine = MACHINES[generation]
        self.image = counting_program(self.machine).to_bytes()
        self.device = CONNECT[connect](self.machine)
        self.ring = Ring(self.device, self.machine)
        self.host = np.zeros(1 << 18, np.uint8)
        self.address = self.device.map_host(self.host)

    @property
    def functional(self) -> bool:
        return Capability.FUNCTIONAL in self.ring.capabilities

    def ask(self, opcode: int, *operands: int, flags: int = 0) -> Completion:
        tag = self.ring.push(opcode, flags, operands)  # type: ignore[arg-type]
        self.device.advance()
        (completion,) = self.ring.completions()
        assert completion.tag == tag
        return completion

    def load(self, slot: int = 0) -> None:
        self.host[: len(self.image)] = np.frombuffer(self.image, np.uint8)
        assert self.ask(Opcode.LOAD_PROGRAM, self.address, len(self.image), slot).status == ErrorCode.OK


@pytest.fixture(params=DEVICES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_discovery(bench: Bench) -> None:
    read = bench.device.mmio_read
    assert read(Register.CHANNELS) == 2
    assert read(Register.ROWS) == bench.machine.organisation.rows
    assert read(Register.CMEM_WORDS) == bench.machine.command_processor.controller_memory_bytes // 4
    assert read(Register.STATUS) == Status.READY
    assert Capability.TIMING in bench.ring.capabilities


def test_read_only_registers_stay(bench: Bench) -> None:
    for register in (Register.ID, Register.CAPS, Register.ROWS, Register.RING_HEAD, Register.COMPLETION_TAIL):
        before = bench.device.mmio_read(register)
        bench.device.mmio_write(register, before ^ 0xFF)
        assert bench.device.mmio_read(register) == before


def test_nothing_happens_without_a_doorbell(bench: Bench) -> None:
    assert bench.device.advance() is False
    assert bench.ask(Opcode.FENCE).status == ErrorCode.OK
    assert bench.device.advance() is False
    assert bench.device.mmio_read(Register.RING_HEAD) == 1


def test_the_ring_goes_round(bench: Bench) -> None:
    for count in (1, ENTRIES, ENTRIES - 1, ENTRIES, 3):
        tags = [bench.ring.push(Opcode.FENCE, 0, ()) for _ in range(count)]
        bench.device.advance()
        assert [completion.tag for completion in bench.ring.completions()] == tags


def test_words_come_back(bench: Bench) -> None:
    bench.host[:400] = np.arange(400) % 251
    assert bench.ask(Opcode.CMEM_WRITE, bench.address, 77, 100).status == ErrorCode.OK
    assert bench.ask(Opcode.CMEM_READ, bench.address + 1000, 77, 100).status == ErrorCode.OK
    assert (bench.host[1000:1400] == bench.host[:400]).all()


def test_rows_come_back_and_are_zeroed(bench: Bench) -> None:
    size = bench.machine.organisation.device_row_bytes
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    bench.host[:size] = data
    assert bench.ask(Opcode.BANK_WRITE, bench.address, 9, 1).status == ErrorCode.OK
    back = bench.ask(Opcode.BANK_READ, bench.address + size, 9, 1)
    if not bench.functional:
        assert back.status == ErrorCode.UNSUPPORTED
        return
    assert (bench.host[size : 2 * size] == data).all()
    assert bench.ask(Opcode.BANK_FILL, 9, 1, 0b10).status == ErrorCode.OK
    assert bench.ask(Opcode.BANK_READ, bench.address + size, 9, 1).status == ErrorCode.OK
    assert (bench.host[size : size + size // 2] == data[: size // 2]).all()  # channel 0
    assert not bench.host[size + size // 2 : 2 * size].any()


def test_a_program_runs_and_takes_time(bench: Bench) -> None:
    bench.load(slot=5)
    words = bench.host[:32].view(np.uint32)
    words[:] = 0
    words[ARGUMENTS["token"]], words[ARGUMENTS["position"]] = 9, 11
    bench.ask(Opcode.CMEM_WRITE, bench.address, 1000, 8)
    first = bench.ask(Opcode.EXECUTE, 5, 1000, flags=BOTH if bench.functional else ExecuteFlag.TIMING)
    assert first.status == ErrorCode.OK
    assert first.end_cycle > first.start_cycle
    second = bench.ask(Opcode.EXECUTE, 5, 1000, flags=ExecuteFlag.TIMING)
    assert second.start_cycle == first.end_cycle
    assert second.end_cycle - second.start_cycle == first.end_cycle - first.start_cycle
    low, high = (bench.device.mmio_read(register) for register in (Register.CYCLES_LO, Register.CYCLES_HI))
    assert low | high << 32 == second.end_cycle
    assert bench.device.last_profile().cycles == second.end_cycle - second.start_cycle
    bench.ask(Opcode.CMEM_READ, bench.address, 1000, 8)
    if bench.functional:
        assert words[ARGUMENTS["next_token"]] == (9 + 11) % 16


@pytest.mark.parametrize(
    ("operands", "code"),
    [
        ((0,), ErrorCode.BAD_DESCRIPTOR),
        ((99,), ErrorCode.BAD_DESCRIPTOR),
        ((Opcode.BANK_WRITE, "host", 16384, 1), ErrorCode.OUT_OF_RANGE),
        ((Opcode.BANK_WRITE, "host", (1 << 64) - 1, 2), ErrorCode.OUT_OF_RANGE),
        ((Opcode.BANK_WRITE, "host", 0, 5), ErrorCode.BAD_WINDOW),
        ((Opcode.BANK_WRITE, 0, 0, 1), ErrorCode.BAD_WINDOW),
        ((Opcode.BANK_FILL, 16380, 5, 3), ErrorCode.OUT_OF_RANGE),
        ((Opcode.BANK_FILL, 0, 1, 4), ErrorCode.OUT_OF_RANGE),
        ((Opcode.CMEM_WRITE, "host", 524288, 1), ErrorCode.OUT_OF_RANGE),
        ((Opcode.CMEM_READ, "host", 0, 1 << 17), ErrorCode.BAD_WINDOW),
        ((Opcode.LOAD_PROGRAM, "host", 8, 0), ErrorCode.BAD_PROGRAM),
        ((Opcode.LOAD_PROGRAM, "host", 1 << 40, 0), ErrorCode.BAD_WINDOW),
        ((Opcode.LOAD_PROGRAM, "host", 8, 64), ErrorCode.BAD_SLOT),
        ((Opcode.UNLOAD_PROGRAM, 3), ErrorCode.BAD_SLOT),
        ((Opcode.EXECUTE, 3, 0), ErrorCode.BAD_SLOT),
    ],
)
def test_wrong_descriptors_get_the_same_answer(bench: Bench, operands: tuple[int | str, ...], code: ErrorCode) -> None:
    numbers = [bench.address if operand == "host" else int(operand) for operand in operands]
    assert bench.ask(*numbers).status == code
    assert bench.device.fault_text()
    assert bench.ask(Opcode.FENCE).status == ErrorCode.OK


def test_a_loaded_slot_is_taken_until_it_is_unloaded(bench: Bench) -> None:
    bench.load()
    assert bench.ask(Opcode.LOAD_PROGRAM, bench.address, len(bench.image), 0).status == ErrorCode.BAD_SLOT
    assert bench.ask(Opcode.UNLOAD_PROGRAM, 0).status == ErrorCode.OK
    bench.load()


def test_reset_forgets_programs_and_words(bench: Bench) -> None:
    bench.load()
    bench.host[:4] = 1
    bench.ask(Opcode.CMEM_WRITE, bench.address, 5, 1)
    bench.ask(Opcode.EXECUTE, 0, 0, flags=ExecuteFlag.TIMING)
    bench.ring.reset()
    assert bench.ask(Opcode.EXECUTE, 0, 0).status == ErrorCode.BAD_SLOT
    answer = bench.ask(Opcode.CMEM_READ, bench.address, 5, 1)
    assert answer.status == ErrorCode.OK
    assert answer.end_cycle == 0
    assert not bench.host[:4].any()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10),
            st.lists(st.one_of(st.integers(0, 70), st.integers(0, 2**64 - 1)), min_size=3, max_size=3),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_random_descriptors_get_the_same_answers(commands: list[tuple[int, list[int], bool]]) -> None:
    """Whatever is asked, native and Python devices agree on the error code, and nothing breaks."""
    answers = []
    for name in ("sim:gddr6-aim", "python:gddr6-aim"):
        bench = Bench(name)
        got = []
        for opcode, operands, use_host in commands:
            if use_host:
                operands = [bench.address, *operands[1:]]
            got.append(bench.ask(opcode, *operands).status)
        answers.append(got)
    assert answers[0] == answers[1]
