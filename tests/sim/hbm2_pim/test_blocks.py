"""Modes, triggers and registers of a pseudo-channel: rule by rule, and against a plain interpreter."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.support.plain_blocks import PlainBlock
from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.isa.declare import OperandError
from wordline.isa.hbm2_pim.crf import CRF, EVEN_BANK, GRF_A, GRF_B, SRF_A, SRF_M
from wordline.isa.hbm2_pim.crf_program import assemble_crf, check_crf, operation, triggers
from wordline.isa.instruction import Instr, encode
from wordline.machines import load_machine
from wordline.numerics import fp16
from wordline.sim.bank_memory import BankMemory
from wordline.sim.fault import Fault
from wordline.sim.hbm2_pim.banks import ALL_BANK, PIM, SINGLE, PseudoChannel
from wordline.sim.reference import ReferenceDevice

ISA = instruction_set("hbm2-pim")
MACHINE = load_machine("hbm2-pim-stack", {"organisation.channels": 1})
RNG = np.random.default_rng(7)


def values(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
    """Random fp16 bits of ordinary size."""
    return fp16.from_float(RNG.normal(0, 2, shape))


def pseudo_channel(program: list[Instr] | None = None, rows: int = 4) -> PseudoChannel:
    memory = BankMemory(MACHINE)
    for row in range(rows):
        memory.writable_row(0, row)[:] = values(*memory.row_shape)
    channel = PseudoChannel(MACHINE, memory, 0)
    if program is not None:
        channel.set_mode(ALL_BANK)
        channel.load_crf(0, assemble_crf(program))
        channel.set_mode(PIM)
    return channel


def row_of(channel: PseudoChannel, row: int) -> np.ndarray:  # type: ignore[type-arg]
    return channel._memory.row(0, row)


def test_mac_sweeps_registers_by_the_column_address() -> None:
    channel = pseudo_channel(
        [
            operation("MAC", aam=1, dst="GRF_B0", a="EVEN_BANK", b="GRF_A0"),
            operation("JUMP", target=0, count=7),
            operation("EXIT"),
        ]
    )
    inputs = values(8, 16)
    channel.load_grf(0, 0, inputs)
    for row in (2, 3):
        channel.trigger_reads(0, row, 0, 32)
    # 8 outputs a block; the 16 inputs of GRF_A[j] go with columns 8j to 8j + 7 of the two rows.
    for output in range(8):
        total = np.zeros((8, 16), np.uint16)
        for j in range(8):
            weights = row_of(channel, 2 + j // 4)[0::2, 8 * (j % 4) + output]
            total = fp16.add(fp16.mul(weights, inputs[j]), total)
        assert np.array_equal(channel.grf[1, output], total)
    with pytest.raises(OperandError, match="the CRF program has ended"):
        channel.trigger_reads(0, 2, 0, 1)


def test_scalars_move_on_every_8_columns_and_spread_over_lanes() -> None:
    channel = pseudo_channel(
        [operation("MAC", aam=1, dst="GRF_A0", a="ODD_BANK", b="SRF_M0")] * 8 + [operation("EXIT")]
    )
    scalars = values(16)
    channel.load_srf(scalars)
    for row in (0, 1):
        channel.trigger_reads(1, row, 0, 32)
    want = np.zeros((8, 16), np.uint16)
    for j in range(8):
        want = fp16.add(fp16.mul(row_of(channel, j // 4)[1::2, 8 * (j % 4) + 5], scalars[j]), want)
    assert np.array_equal(channel.grf[0, 5], want)


def test_fill_takes_8_triggers_and_nop_lets_registers_out() -> None:
    channel = pseudo_channel(
        [
            operation("FILL", relu=1, dst="GRF_A0", a="EVEN_BANK"),
            operation("NOP", n=7),
            operation("MOV", dst="GRF_B3", a="ODD_BANK"),
            operation("NOP", n=0),
            operation("EXIT"),
        ]
    )
    channel.trigger_reads(0, 0, 16, 8)
    channel.trigger_writes(0, 1, 8, 8)
    assert np.array_equal(row_of(channel, 1)[0::2, 8:16], fp16.relu(row_of(channel, 0)[0::2, 16:24]))
    channel.trigger_reads(1, 2, 30, 1)
    channel.trigger_writes(1, 3, 27, 1)  # column 27 mod 8 is register 3
    assert np.array_equal(row_of(channel, 3)[1::2, 27], row_of(channel, 2)[1::2, 30])


def test_jump_is_taken_with_the_instruction_after_it() -> None:
    channel = pseudo_channel(
        [
            operation("ADD", dst="GRF_A0", a="GRF_A0", b="SRF_A0"),
            operation("JUMP", target=0, count=4),
            operation("ADD", dst="GRF_A1", a="GRF_A1", b="SRF_A0"),
            operation("JUMP", target=2, count=0),
            operation("ADD", dst="GRF_A2", a="GRF_A2", b="SRF_A0"),
            operation("JUMP", target=4, count=1),
            operation("EXIT"),
        ]
    )
    scalars = np.zeros(16, np.uint16)
    scalars[8] = 0x3C00
    channel.load_srf(scalars)
    channel.trigger_reads(0, 0, 0, 8)  # without a bank operand any column triggers
    assert fp16.to_float(channel.grf[0, :3, 0, 0]).tolist() == [5, 1, 2]
    with pytest.raises(OperandError, match="has ended"):
        channel.trigger_reads(0, 0, 0, 1)
    channel.set_mode(PIM)  # starts it again
    channel.trigger_reads(0, 0, 0, 8)
    assert fp16.to_float(channel.grf[0, :3, 0, 0]).tolist() == [10, 2, 4]


def test_what_each_mode_refuses() -> None:
    channel = pseudo_channel([operation("MOV", dst="GRF_A0", a="EVEN_BANK"), operation("EXIT")])
    data = values(1, 16)
    for attempt, text in (
        (lambda: channel.read(0, 0, 0, 1), "RD needs single mode, the pseudo-channel is in pim mode"),
        (lambda: channel.write(0, 0, 0, data), "WR needs single or all_bank mode"),
        (lambda: channel.trigger_reads(1, 0, 0, 1), "MOV reads an even bank, the command an odd one"),
    ):
        with pytest.raises(OperandError, match=text):
            attempt()
    channel.set_mode(PIM)
    with pytest.raises(OperandError, match="a write triggers MOV; only NOP lets a register out"):
        channel.trigger_writes(0, 0, 0, 1)
    channel.set_mode(SINGLE)
    for attempt, text in (
        (lambda: channel.load_crf(0, [0]), "WRCRF needs all_bank or pim mode"),
        (lambda: channel.load_srf(data[0]), "WRSRF needs all_bank or pim mode"),
        (lambda: channel.load_grf(0, 0, data), "WRGRF needs all_bank or pim mode"),
        (lambda: channel.trigger_reads(0, 0, 0, 1), "PIMRD needs pim mode"),
        (lambda: channel.trigger_writes(0, 0, 0, 1), "PIMWR needs pim mode"),
    ):
        with pytest.raises(OperandError, match=text):
            attempt()


def test_all_bank_writes_reach_one_parity() -> None:
    channel = pseudo_channel()
    before = row_of(channel, 1).copy()
    data = values(2, 16)
    channel.set_mode(ALL_BANK)
    channel.write(3, 1, 4, data)
    assert (row_of(channel, 1)[1::2, 4:6] == data).all()
    assert np.array_equal(row_of(channel, 1)[0::2], before[0::2])


def test_loading_part_of_a_crf_column_ends_it() -> None:
    channel = pseudo_channel([operation("NOP", n=3)] * 9)
    channel.load_crf(0, assemble_crf([operation("NOP", n=0)]))
    channel.set_mode(PIM)
    channel.trigger_reads(0, 0, 0, 1)
    with pytest.raises(OperandError, match="has ended"):
        channel.trigger_reads(0, 0, 0, 1)
    with pytest.raises(OperandError, match="CRF entry 39 is outside 0"):
        channel.load_crf(3, [0] * 9)


def test_a_device_program_runs_and_faults_name_the_place() -> None:
    device = ReferenceDevice(MACHINE)
    weights = values(16, 32, 16)
    device.bank_write(5, 1, weights)
    device.scratch().view(np.uint16)[:16] = values(16)
    program = [
        operation("MUL", aam=1, dst="GRF_A0", a="EVEN_BANK", b="SRF_M2"),
        operation("NOP", n=7),
        operation("EXIT"),
    ]
    entries = "\n".join(f"program word={word:#x}" for word in assemble_crf(program))
    text = f"""
        stream channel mask=0x1
          MODE mode=all_bank
          WRCRF parity=odd column=0 {{
            {entries}
          }}
          WRSRF parity=odd source=0
          MODE mode=pim parity=odd
          PIMRD parity=even row=5 column=8 count=8
          PIMWR parity=even row=6 column=0 count=8
          MODE mode=single parity=odd
          RD bank=4 row=6 column=1 count=2 target=64
    """
    slot = device.load_program(assemble(ISA, text))
    device.execute(slot)
    scalar = device.scratch().view(np.uint16)[2]
    assert np.array_equal(device.scratch().view(np.uint16)[32:64].reshape(2, 16), fp16.mul(weights[4, 9:11], scalar))
    bad = device.load_program(assemble(ISA, "stream channel mask=0x1\nPIMRD row=0 count=1\n"))
    with pytest.raises(Fault, match="PIMRD needs pim mode, the pseudo-channel is in single mode") as caught:
        device.execute(bad)
    assert (caught.value.stream, caught.value.channel, caught.value.instruction) == (0, 0, 0)


def random_program(rng: random.Random) -> list[Instr]:
    """Valid instructions with loops; ends with EXIT."""
    program: list[Instr] = []
    loop = 0
    while len(program) < 20:
        name = rng.choice(["NOP", "MOV", "FILL", "ADD", "MUL", "MAC", "MAC", "MAD", "JUMP"])
        if name == "JUMP":
            if len(program) > loop:
                program.append(operation("JUMP", target=rng.randrange(loop, len(program)), count=rng.randrange(4)))
                loop = len(program)
            continue
        if name == "NOP":
            program.append(operation("NOP", n=rng.randrange(4)))
            continue
        fields: dict[str, Any] = {"dst": rng.randrange(16), "aam": rng.randrange(2)}
        if name in ("MOV", "FILL"):
            fields["relu"] = rng.randrange(2)
        for key in ("a", "b", "c"):
            if any(bits.name == key for bits in CRF.by_name[name].fields):
                kinds = [GRF_A, GRF_B, SRF_M, SRF_A, EVEN_BANK, EVEN_BANK + 1]
                base = rng.choice(kinds)
                fields[key] = base + (rng.randrange(8) if base < EVEN_BANK else 0)
        instr = operation(name, **fields)
        try:
            check_crf([encode(instr, CRF.layout)[0]])
        except OperandError:
            continue
        program.append(instr)
    return [*program, operation("EXIT")]


def unrolled(program: list[Instr]) -> list[Instr]:
    """The instructions in the order in which they run, loops unrolled."""
    order: list[Instr] = []
    at, left = 0, {}
    while program[at].name != "EXIT":
        instr = program[at]
        if instr.name != "JUMP":
            order.append(instr)
            at += 1
            continue
        left.setdefault(at, instr.fields["count"])
        if left[at]:
            left[at] -= 1
            at = instr.fields["target"]
        else:
            at += 1
    return order


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_agree_with_a_plain_interpreter(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    channel = pseudo_channel(program)
    channel.load_grf(0, 0, values(8, 16))
    channel.load_grf(1, 0, values(8, 16))
    channel.load_srf(values(16))
    lanes = [(block, lane, PlainBlock(MACHINE.organisation.columns)) for block, lane in ((0, 0), (3, 7), (7, 15))]
    plain_program = [(i.name, dict(i.fields)) for i in program]
    for block, lane, plain in lanes:
        plain.start(plain_program)
        floats = [fp16.to_float(channel.grf[f, :, block, lane]) for f in (0, 1)]
        plain.registers = [*floats[0].tolist(), *floats[1].tolist(), *fp16.to_float(channel.srf).tolist()]
    for instr in unrolled(program):
        for _ in range(triggers(instr)):
            banks = [v - EVEN_BANK for k in "abc" if (v := instr.fields.get(k, 0)) >= EVEN_BANK]
            parity = banks[0] if banks else rng.randrange(2)
            row, column = rng.randrange(4), rng.randrange(32)
            for block, lane, plain in lanes:
                value = float(fp16.to_float(row_of(channel, row)[2 * block + parity, column, lane : lane + 1])[0])
                plain.trigger(row, column, value)
            channel.trigger_reads(parity, row, column, 1)
    for block, lane, plain in lanes:
        want = fp16.from_float(np.array(plain.registers[:16])).reshape(2, 8)
        assert np.array_equal(channel.grf[:, :, block, lane], want)


def test_the_host_loads_and_stores_fp16() -> None:
    device = ReferenceDevice(MACHINE)
    data = values(40)
    device.scratch().view(np.uint16)[:40] = data
    text = """
        stream vector
          VPASS n0=1 n1=1 n2=20 high=20 {
            operands base=0 s2=2 dtype=f16
            operands base=40 s2=2 dtype=f16
            operations op=add a=x0 b=x1
            result base=128 s2=2 dtype=f16 value=t0
          }
    """
    device.execute(device.load_program(assemble(ISA, text)))
    got = device.scratch().view(np.uint16)[64:84]
    assert np.array_equal(got, fp16.add(data[:20], data[20:]))  # float32 then fp16 rounds as if once
