"""Whole programs on the reference device: faults, misuse, random programs in random interleavings."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_programs import faulting_case, random_case, run_case
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.isa.disassemble import disassemble
from wordline.machines import Machine, load_machine
from wordline.sim.fault import Fault
from wordline.sim.reference import ReferenceDevice

ISA = instruction_set("gddr6-aim")
MACHINE = load_machine("gddr6-aim-chip")
SMALL = load_machine(
    "gddr6-aim-chip", {"organisation.channels": 3, "bank_unit.accumulators": 2, "scratch.bytes_per_channel": 8192}
)
SEEDS = st.integers(0, (1 << 32) - 1)


def fault_of(text: str, argument_base: int = 0, **options: int) -> Fault:
    device = ReferenceDevice(MACHINE)
    slot = device.load_program(assemble(ISA, text))
    with pytest.raises(Fault) as caught:
        device.execute(slot, argument_base, **options)
    return caught.value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("MAC16 row=r2+16384 count=1", "row 16384 is outside 0..16383"),
        ("MAC16 column=r2+63 count=2", "column 64 is outside 0..63"),
        ("MAC16 column=r2-1 count=2", "column -1 is outside 0..63"),
        ("MAC16 buffer=r2+60 count=6", "buffer column 65 is outside 0..63"),
        ("MAC bank=r2+16 count=1", "bank 16 is outside 0..15"),
        ("MAC accumulator=r2+32 count=1", "accumulator 32 is outside 0..31"),
        ("RDMAC16 accumulator=r2+31 count=2", "accumulator 32 is outside 0..31"),
        ("RD count=1 target=r2+65536", "scratch offset 65567 is outside 0..65535"),
        ("RD count=1 target=r2-32", "scratch offset -32 is outside 0..65535"),
        ("WR count=1 source=r2+33", "scratch offset 33 is not a multiple of 32"),
        ("WRE source=r2+1", "scratch offset 1 is not a multiple of 2"),
        ("ACT16 row=r2-1", "row -1 is outside 0..16383"),
        ("LDM rd=r3 address=r2-1", "controller memory word -1 is outside 0..524287"),
        ("LDA rd=r3 index=r2-1", "controller memory word -1 is outside 0..524287"),
        ("STA index=r2+524287 value=0", "controller memory word 524296 is outside 0..524287"),
    ],
)
def test_faults_of_a_channel(body: str, reason: str) -> None:
    fault = fault_of(f"stream link\nstream channel mask=0x2\nPREA\n{body}", argument_base=9)
    assert fault.code == "device-fault"
    assert (fault.stream, fault.channel, fault.instruction, fault.reason) == (1, 1, 1, reason)
    assert str(fault) == (
        f"the device program stopped: {reason}\n"
        f"  where: stream 1, channel 1, instruction 1: {fault.text}\n"
        "  do: look the instruction up with `wordline disasm`; arguments or page table do not fit the program"
    )
    assert fault.text.split()[0] == body.split()[0]


@pytest.mark.parametrize(
    ("head", "entry", "reason"),
    [
        ("n0=1 n1=1 n2=2", "operands base=2 s2=4 dtype=f32", "vector operand has an element address that is not a mul"),
        ("n0=1 n1=1 n2=2", "operands base=0 s2=2 dtype=i32", "vector operand has an element address that is not a mul"),
        ("n0=1 n1=1 n2=2", "operands base=1 s2=2", "vector operand has an element address that is not a multiple of 2"),
        ("n0=1 n1=1 n2=3", "operands base=0 s2=2 rotate=1", "vector operand rotates halves of an odd inner extent 3"),
        ("n0=1024 n1=1024 n2=1", "operands base=0", "the pass has more elements than scratch has bytes (131072)"),
    ],
)
def test_faults_of_a_pass(head: str, entry: str, reason: str) -> None:
    assert fault_of(f"stream vector\nVPASS {head} {{\n{entry}\n}}").reason.startswith(reason)


def test_strides_of_single_elements_may_be_anything() -> None:
    device = ReferenceDevice(MACHINE)
    text = "stream vector\nVPASS n0=1 n1=1 n2=1 high=1 {\noperands base=4 s0=1 s1=3 s2=5 dtype=f32\n}"
    device.execute(device.load_program(assemble(ISA, text)))


def test_faults_of_a_transfer() -> None:
    device = ReferenceDevice(MACHINE)
    host = bytearray(100)
    address = device.map_host(host)
    device.cmem_write(2, np.frombuffer(struct.pack("<Q", address), dtype=np.int32))
    for operands, reason in (
        ("slot=2 blocks=1 bytes=101", f"host address {address:#x} with 101 bytes lies in no open window"),
        ("slot=2 blocks=1 bytes=1 offset=-1", f"host address {address - 1:#x} with 1 bytes lies in no open window"),
        ("slot=0 blocks=1 bytes=1", "host address 0x0 with 1 bytes lies in no open window"),
        ("slot=2 blocks=2 bytes=131073", "a block of 131073 bytes exceeds scratch (131072)"),
    ):
        slot = device.load_program(assemble(ISA, f"stream link\nXIN {operands}"))
        with pytest.raises(Fault) as caught:
            device.execute(slot)
        assert caught.value.reason == reason
    device.unmap_host(address)
    slot = device.load_program(assemble(ISA, "stream link\nXIN slot=2 blocks=1 bytes=1"))
    with pytest.raises(Fault, match="no open window"):
        device.execute(slot)


def test_deadlock_names_the_first_stream_that_waits() -> None:
    text = """
        stream channel mask=0x3
          WAIT signal=2 value=1
          SIGNAL signal=1
        stream link
          WAIT signal=1 value=1
          SIGNAL signal=2
    """
    for options in ({}, {"seed": 3}):
        fault = fault_of(text, **options)
        assert (fault.stream, fault.channel, fault.instruction) == (0, 0, 0)
        assert fault.reason == "deadlock: every stream that has not ended waits for a signal"


def test_instruction_limit() -> None:
    text = "stream channel mask=0x1\nLOOP rd=r2 count=1000 {\nPREA\n}"
    assert fault_of(text, instruction_limit=50).reason == "the instruction limit of this run is reached"
    device = ReferenceDevice(MACHINE)
    device.execute(device.load_program(assemble(ISA, text)), instruction_limit=1001)


def test_faults_survive_pickling() -> None:
    fault = pickle.loads(pickle.dumps(Fault(1, 2, 3, "reason", "MAC16")))
    assert (fault.stream, fault.channel, fault.instruction, fault.reason) == (1, 2, 3, "reason")
    assert str(fault).startswith("the device program stopped: reason")


def test_misuse_of_the_device() -> None:
    device = ReferenceDevice(MACHINE)
    for call, message in (
        (lambda: device.execute(3), "no program is loaded in slot 3"),
        (lambda: device.unload_program(3), "no program is loaded in slot 3"),
        (lambda: device.bank_read(16384, 1), "rows 16384..16385 of 16384"),
        (lambda: device.bank_write(0, 1, bytes(7)), "1 rows need 65536 bytes, the image has 7"),
        (lambda: device.bank_fill_zero(-1, 1, 1), "rows -1..0 of 16384"),
        (lambda: device.cmem_write(524287, [1, 2]), "controller memory words 524287..524289 of 524288"),
        (lambda: device.cmem_read(-1, 1), "controller memory words -1..0"),
        (lambda: device.unmap_host(4096), "no host window is open at 0x1000"),
        (lambda: device.map_host(bytes(4)), "host memory is read-only"),
        (lambda: device.load_program(b"nothing"), "shorter than its header"),
    ):
        with pytest.raises(WordlineError) as caught:
            call()
        assert message in str(caught.value)


def test_programs_come_and_go() -> None:
    device = ReferenceDevice(MACHINE)
    program = assemble(ISA, "stream link\nSTA index=0 value=1")
    first, second = device.load_program(program), device.load_program(program.to_bytes())
    assert first != second
    device.unload_program(first)
    device.execute(second)
    assert device.cmem_read(0, 1).tolist() == [1]


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from([MACHINE, SMALL]))
def test_random_programs_do_not_depend_on_the_interleaving(seed: int, machine: Machine) -> None:
    case = random_case(seed, machine)
    device = ReferenceDevice(machine)
    expected = run_case(device, case, device.execute)
    for order in range(2):
        device = ReferenceDevice(machine)
        outcome = run_case(device, case, lambda slot, base, d=device, o=order: d.execute(slot, base, seed=o))
        assert not expected.difference(outcome)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_random_programs_survive_their_text(seed: int) -> None:
    program = random_case(seed, MACHINE).program
    assert assemble(ISA, disassemble(program)).to_bytes() == program.to_bytes()


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from([None, 1]))
def test_faults_do_not_depend_on_the_interleaving(seed: int, order: int | None) -> None:
    case, stream, channel, instruction = faulting_case(seed, MACHINE)
    device = ReferenceDevice(MACHINE)
    with pytest.raises(Fault) as caught:
        run_case(device, case, lambda slot, base: device.execute(slot, base, seed=order))
    fault = caught.value
    assert (fault.stream, fault.channel, fault.instruction) == (stream, channel, instruction)
    assert "deadlock" not in fault.reason


def test_random_programs_use_every_instruction() -> None:
    names = {
        instr.name
        for seed in range(60)
        for stream in random_case(seed, MACHINE).program.streams
        for instr in stream.instrs
    }
    assert names == set(ISA.by_name)
