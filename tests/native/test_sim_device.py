"""The simulated device keeps the device interface, whatever the host writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordline import _native
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import load_machine
from wordline.runtime.device_interface import (
    COMPLETION,
    DESCRIPTOR,
    DEVICE_ID,
    Capability,
    Completion,
    ErrorCode,
    ExecuteFlag,
    Opcode,
    Register,
    Status,
    fault_place,
)
from wordline.runtime.ring import Ring
from wordline.runtime.software_device import SoftwareDevice

MACHINE = load_machine("gddr6-aim-chip", {"organisation.rows": 16})
ROW_BYTES = MACHINE.organisation.device_row_bytes
ISA = instruction_set("gddr6-aim")
BOTH = ExecuteFlag.FUNCTIONAL | ExecuteFlag.TIMING


def simulator() -> _native.SimDevice:
    return _native.SimDevice(MACHINE.flat(), MACHINE.hash, 2)


class Host:
    """A host that has one device and waits for each of its answers."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.ring = Ring(device, MACHINE)

    def run(self, opcode: int, *operands: int, flags: int = 0) -> Completion:
        self.ring.push(opcode, flags, operands)  # type: ignore[arg-type]
        assert self.device.advance()
        [completion] = self.ring.completions()
        return completion

    def load(self, *streams: tuple[Engine, int, list[Instr]], slot: int = 0) -> Completion:
        image = Program(ISA, tuple(Stream(e, m, tuple(i)) for e, m, i in streams)).to_bytes()
        address = self.device.map_host(np.frombuffer(image, np.uint8))
        return self.run(Opcode.LOAD_PROGRAM, address, len(image), slot)


def test_it_introduces_itself() -> None:
    device = simulator()
    assert device.mmio_read(Register.ID) == DEVICE_ID
    assert device.mmio_read(Register.CAPS) == Capability.FUNCTIONAL | Capability.TIMING
    assert device.mmio_read(Register.CHANNELS) == 2
    assert device.mmio_read(Register.ROWS) == 16
    assert device.mmio_read(Register.CMEM_WORDS) == 524288
    words = [device.mmio_read(Register.MACHINE_HASH + 4 * i) for i in range(8)]
    assert "".join(f"{word:08x}" for word in words) == MACHINE.hash
    for offset in (Register.ID, Register.STATUS, Register.CYCLES_LO, 0x6C, 3, 0xFFFF_FFFC):
        before = device.mmio_read(offset)
        device.mmio_write(offset, 0xDEAD)
        assert device.mmio_read(offset) == before


def test_bank_and_controller_memory_round_trip() -> None:
    host = Host(simulator())
    data = np.random.default_rng(2).integers(0, 256, 2 * ROW_BYTES, dtype=np.uint8)
    back = np.zeros_like(data)
    source, target = host.device.map_host(data), host.device.map_host(back)
    assert host.run(Opcode.BANK_WRITE, source, 14, 2).status == ErrorCode.OK
    assert host.run(Opcode.BANK_READ, target, 14, 2).status == ErrorCode.OK
    assert (back == data).all()
    assert host.run(Opcode.BANK_FILL, 14, 1, 0b10).status == ErrorCode.OK
    assert host.run(Opcode.BANK_READ, target, 14, 2).status == ErrorCode.OK
    half = ROW_BYTES // 2
    assert not back[half:ROW_BYTES].any()
    assert (back[:half] == data[:half]).all()
    assert (back[ROW_BYTES:] == data[ROW_BYTES:]).all()
    assert host.run(Opcode.CMEM_WRITE, source, 524280, 8).status == ErrorCode.OK
    assert host.run(Opcode.CMEM_READ, target + 64, 524280, 8).status == ErrorCode.OK
    assert (back[64:96] == data[:32]).all()


def test_execution_gives_values_and_cycles() -> None:
    host = Host(simulator())
    store = [make(ISA, "STA", index=3, value=41)]
    assert (
        host.load((Engine.CHANNEL, 3, [make(ISA, "MAC16", count=64)]), (Engine.VECTOR, 0, store)).status == ErrorCode.OK
    )
    done = host.run(Opcode.EXECUTE, 0, 100, flags=BOTH)
    assert (done.status, done.start_cycle) == (ErrorCode.OK, 0)
    profile = host.device.last_profile()
    assert done.end_cycle == profile.cycles > 128
    timing = _native.TimingModel(MACHINE.flat())
    image = Program(
        ISA, (Stream(Engine.CHANNEL, 3, (make(ISA, "MAC16", count=64),)), Stream(Engine.VECTOR, 0, tuple(store)))
    ).to_bytes()
    alone = timing.run(timing.load_program(image), 0, np.zeros(4, np.int32))
    assert alone.cycles == profile.cycles
    word = np.zeros(4, np.uint8)
    host.run(Opcode.CMEM_READ, host.device.map_host(word), 103, 1)
    assert word[0] == 41
    again = host.run(Opcode.EXECUTE, 0, 0, flags=ExecuteFlag.FUNCTIONAL)
    assert again.start_cycle == again.end_cycle == done.end_cycle
    assert host.device.last_profile() is None
    assert host.run(Opcode.EXECUTE, 0, 0, flags=ExecuteFlag.TIMING).end_cycle == 2 * done.end_cycle
    assert host.device.mmio_read(Register.CYCLES_LO) == 2 * done.end_cycle


def test_a_fault_says_where_and_stops_the_device_until_reset() -> None:
    host = Host(simulator())
    host.load(
        (Engine.CHANNEL, 3, []), (Engine.VECTOR, 0, [make(ISA, "ADD", rd=2, a=5), make(ISA, "LDM", rd=3, address=-1)])
    )
    done = host.run(Opcode.EXECUTE, 0, 0, flags=BOTH)
    assert done.status == ErrorCode.FAULT
    assert fault_place(done.detail) == (1, 0, 1)
    assert host.device.fault_text() == "controller memory word -1 is outside 0..524287"
    assert host.device.mmio_read(Register.STATUS) == Status.FAULT
    assert host.device.mmio_read(Register.ERROR) == ErrorCode.FAULT
    assert host.run(Opcode.FENCE).status == ErrorCode.ABORTED
    assert host.device.fault_text() == "controller memory word -1 is outside 0..524287"
    host.ring.reset()
    assert host.run(Opcode.FENCE).status == ErrorCode.OK
    assert host.run(Opcode.EXECUTE, 0, 0, flags=BOTH).status == ErrorCode.BAD_SLOT


def test_reset_loses_memory_and_programs() -> None:
    host = Host(simulator())
    data = np.full(ROW_BYTES, 7, np.uint8)
    address = host.device.map_host(data)
    host.run(Opcode.BANK_WRITE, address, 3, 1)
    host.run(Opcode.CMEM_WRITE, address, 0, 4)
    host.ring.reset()
    host.run(Opcode.BANK_READ, address, 3, 1)
    assert not data.any()
    data[:] = 7
    host.run(Opcode.CMEM_READ, address, 0, 4)
    assert not data[:16].any()


BIG = (1 << 64) - 1


@pytest.mark.parametrize(
    ("opcode", "operands", "code"),
    [
        (0, (), ErrorCode.BAD_DESCRIPTOR),
        (77, (), ErrorCode.BAD_DESCRIPTOR),
        (Opcode.BANK_WRITE, (0, 0, 1), ErrorCode.BAD_WINDOW),
        (Opcode.BANK_WRITE, (BIG, 0, 1), ErrorCode.BAD_WINDOW),
        (Opcode.BANK_READ, (0, 16, 1), ErrorCode.OUT_OF_RANGE),
        (Opcode.BANK_READ, (0, 2, BIG), ErrorCode.OUT_OF_RANGE),
        (Opcode.BANK_FILL, (BIG, 2, 1), ErrorCode.OUT_OF_RANGE),
        (Opcode.BANK_FILL, (0, 1, 4), ErrorCode.OUT_OF_RANGE),
        (Opcode.CMEM_WRITE, (0, 524288, 1), ErrorCode.OUT_OF_RANGE),
        (Opcode.CMEM_READ, (0, 1, BIG), ErrorCode.OUT_OF_RANGE),
        (Opcode.CMEM_READ, (5, 0, 1), ErrorCode.BAD_WINDOW),
        (Opcode.LOAD_PROGRAM, (0, 8, 64), ErrorCode.BAD_SLOT),
        (Opcode.LOAD_PROGRAM, (0, 8, 5), ErrorCode.BAD_WINDOW),
        (Opcode.UNLOAD_PROGRAM, (1,), ErrorCode.BAD_SLOT),
        (Opcode.EXECUTE, (BIG, 0), ErrorCode.BAD_SLOT),
    ],
)
def test_bad_descriptors_are_answered_alike_by_every_device(
    opcode: int, operands: tuple[int, ...], code: ErrorCode
) -> None:
    for host in (Host(simulator()), Host(SoftwareDevice(MACHINE))):
        assert host.run(opcode, *operands).status == code
        assert host.device.fault_text()
        assert host.run(Opcode.FENCE).status == ErrorCode.OK


def test_a_malformed_program_is_refused() -> None:
    host = Host(simulator())
    address = host.device.map_host(np.frombuffer(b"WLPG\1\0\3\0", np.uint8))
    assert host.run(Opcode.LOAD_PROGRAM, address, 8, 0).status == ErrorCode.BAD_PROGRAM
    assert "3 streams do not fit 8 bytes" in host.device.fault_text()
    assert host.load((Engine.CHANNEL, 3, [])).status == ErrorCode.OK
    assert host.load((Engine.CHANNEL, 3, [])).status == ErrorCode.BAD_SLOT
    assert host.run(Opcode.EXECUTE, 0, 524288).status == ErrorCode.OUT_OF_RANGE


def test_read_only_memory_is_not_written() -> None:
    host = Host(simulator())
    address = host.device.map_host(np.frombuffer(bytes(64), np.uint8))
    assert host.run(Opcode.CMEM_WRITE, address, 0, 16).status == ErrorCode.OK
    assert host.run(Opcode.CMEM_READ, address, 0, 16).status == ErrorCode.BAD_WINDOW


def test_unusable_rings_stop_the_device() -> None:
    for entries, tail in ((0, 1), (3, 1), (4, 5), (1 << 31, 0xFFFF_FFFF)):
        device = simulator()
        device.mmio_write(Register.RING_ENTRIES, entries)
        device.mmio_write(Register.RING_TAIL, tail)
        assert not device.advance()
        assert device.mmio_read(Register.STATUS) == Status.FAULT
        assert "ring" in device.fault_text()
    device = simulator()
    device.mmio_write(Register.RING_ENTRIES, 4)
    device.mmio_write(Register.RING_TAIL, 1)
    assert not device.advance()
    assert device.mmio_read(Register.ERROR) == ErrorCode.BAD_WINDOW


def test_closing_a_window_twice_is_an_error() -> None:
    device = simulator()
    address = device.map_host(np.zeros(4, np.uint8))
    device.unmap_host(address)
    with pytest.raises(WordlineError):
        device.unmap_host(address)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10),
            st.integers(0, 3),
            st.lists(st.one_of(st.integers(0, 20), st.integers(0, BIG)), min_size=7, max_size=7),
        ),
        max_size=20,
    )
)
def test_any_descriptor_gets_an_answer(descriptors: list[tuple[int, int, list[int]]]) -> None:
    device = simulator()
    entries = 32
    ring, answers = np.zeros(entries * DESCRIPTOR.size, np.uint8), np.zeros(entries * COMPLETION.size, np.uint8)
    data = device.map_host(np.zeros(1 << 16, np.uint8))
    for register, address in (
        (Register.RING_BASE_LO, device.map_host(ring)),
        (Register.COMPLETION_BASE_LO, device.map_host(answers)),
    ):
        device.mmio_write(register, address & 0xFFFF_FFFF)
        device.mmio_write(register + 4, address >> 32)
    device.mmio_write(Register.RING_ENTRIES, entries)
    for i, (opcode, flags, operands) in enumerate(descriptors):
        if operands[3] % 2:
            operands = [data, *operands[1:]]
        DESCRIPTOR.pack_into(ring.data, i * DESCRIPTOR.size, opcode, flags, 1000 + i, *operands)
    device.mmio_write(Register.RING_TAIL, len(descriptors))
    assert device.advance() == bool(descriptors)
    assert device.mmio_read(Register.COMPLETION_TAIL) == device.mmio_read(Register.RING_HEAD) == len(descriptors)
    for i in range(len(descriptors)):
        completion = Completion(*COMPLETION.unpack_from(answers.data, i * COMPLETION.size))
        assert completion.tag == 1000 + i
        assert completion.status in list(ErrorCode)
