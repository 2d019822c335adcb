"""The meaning of each instruction in the reference device, against results worked out by hand."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.machines import load_machine
from wordline.sim.fault import Fault
from wordline.sim.reference import ReferenceDevice

ISA = instruction_set("gddr6-aim")
MACHINE = load_machine("gddr6-aim-chip")
BPC = MACHINE.scratch.bytes_per_channel
ROW = 5


def bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """bf16 bits of values that bf16 holds exactly."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def as_f32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.fixture
def device() -> ReferenceDevice:
    return ReferenceDevice(MACHINE)


def run(device: ReferenceDevice, text: str, argument_base: int = 0, **options: int) -> npt.NDArray[np.int32]:
    return device.execute(device.load_program(assemble(ISA, text)), argument_base, **options)


def channel(device: ReferenceDevice, body: str, mask: int = 1) -> None:
    run(device, f"stream channel mask={mask:#x}\n{body}")


def scratch16(device: ReferenceDevice, offset: int, count: int, of: int = 0) -> npt.NDArray[np.uint16]:
    start = of * BPC + offset
    return device.scratch()[start : start + 2 * count].view(np.uint16)


def fill_bank(device: ReferenceDevice, values: npt.NDArray[np.uint16], row: int = ROW) -> None:
    """``values`` [banks, columns, 16] into ``row`` of channel 0."""
    image = np.zeros((1, 2, 16, 64, 16), dtype=np.uint16)
    image[0, 0, : values.shape[0], : values.shape[1]] = values
    device.bank_write(row, 1, image.tobytes())


# --- scalar instructions


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("ADD rd=r9 a=7 b=r2", 3),
        ("ADD rd=r9 a=r3 b=1", -(1 << 31)),
        ("SUB rd=r9 a=7 b=r2", 11),
        ("SUB rd=r9 a=r4 b=1", (1 << 31) - 1),
        ("MUL rd=r9 a=r3 b=r3", 1),
        ("MUL rd=r9 a=70000 b=70000", 70000 * 70000 - (1 << 32)),
        ("SHL rd=r9 a=3 b=4", 48),
        ("SHL rd=r9 a=3 b=33", 6),
        ("SHL rd=r9 a=1 b=31", -(1 << 31)),
        ("SHR rd=r9 a=r2 b=1", -2),
        ("SHR rd=r9 a=r4 b=-1", -1),
        ("AND rd=r9 a=r2 b=15", 12),
        ("OR rd=r9 a=r2 b=3", -1),
        ("MIN rd=r9 a=r2 b=3", -4),
        ("LT rd=r9 a=r2 b=3", 1),
        ("LT rd=r9 a=3 b=r2", 0),
        ("LT rd=r9 a=3 b=3", 0),
        ("EQ rd=r9 a=r2 b=-4", 1),
        ("EQ rd=r9 a=r2 b=4", 0),
        ("ADD rd=r9 a=r2*3+r2*-1+10 b=0", 2),
        ("ADD rd=r9 a=r3*2 b=0", -2),
    ],
)
def test_scalar_arithmetic_wraps_at_32_bits(device: ReferenceDevice, instruction: str, expected: int) -> None:
    setup = "ADD rd=r2 a=-4\nADD rd=r3 a=1\nSHL rd=r3 a=r3 b=31\nSUB rd=r3 a=r3 b=1\nSHL rd=r4 a=1 b=31"
    channel(device, f"{setup}\n{instruction}\nSTA index=3 value=r9")
    assert device.cmem_read(3, 1).tolist() == [expected]


def test_loads_and_stores(device: ReferenceDevice) -> None:
    device.cmem_write(100, [11, -12, 13])
    device.cmem_write(7000, [700])
    text = """
        stream channel mask=0x3
          LDA rd=r2 index=1
          LDA rd=r3 index=r1*2
          LDM rd=r4 address=7000
          STA index=r1*3+10 value=r2
          STA index=r1*3+11 value=r3
          STA index=r1*3+12 value=r4+r1
    """
    run(device, text, argument_base=100)
    assert device.cmem_read(110, 6).tolist() == [-12, 11, 700, -12, 13, 701]


def test_registers_start_at_zero_and_the_channel_number(device: ReferenceDevice) -> None:
    store = "STA index={0} value=r1*100+r0+r31*0+5\nSTA index={1} value=r31\nADD rd=r31 a=9\n"
    text = "stream channel mask=0x2\n" + store.format(0, 1) + "stream vector\n" + store.format(2, 3) + "stream link\n"
    text = text.replace("+r0+r31*0", "")
    for _ in range(2):
        run(device, text)
        assert device.cmem_read(0, 4).tolist() == [105, 0, 5, 0]


# --- loops


def trace_loops(device: ReferenceDevice, body: str) -> list[int]:
    """Words that ``OUT`` lines append in order of execution: OUT x appends x."""
    lines = body.replace("OUT", "STA index=r20+8 value=")
    lines = "\n".join(
        line.replace("value= ", "value=") + "\nADD rd=r20 a=r20+1" if "STA" in line else line
        for line in lines.splitlines()
    )
    channel(device, lines + "\nSTA index=0 value=r20")
    return [int(v) for v in device.cmem_read(8, int(device.cmem_read(0, 1)[0]))]


def test_loop_indices(device: ReferenceDevice) -> None:
    body = "LOOP rd=r2 count=3 {\nOUT r2\nLOOP rd=r3 count=r2 {\nOUT r3+10\n}\n}\nOUT r2+100\nOUT r3+200"
    assert trace_loops(device, body) == [0, 1, 10, 2, 10, 11, 102, 201]


def test_a_loop_that_does_not_run_leaves_its_register(device: ReferenceDevice) -> None:
    body = "ADD rd=r2 a=77\nLOOP rd=r2 count=0 {\nOUT 1\n}\nOUT r2\nLOOP rd=r2 count=-3 {\nOUT 1\n}\nOUT r2"
    assert trace_loops(device, body) == [77, 77]


def test_an_empty_loop_leaves_its_last_index(device: ReferenceDevice) -> None:
    assert trace_loops(device, "LOOP rd=r2 count=1000000 {\n}\nOUT r2") == [999999]


def test_loops_that_end_together(device: ReferenceDevice) -> None:
    body = "LOOP rd=r2 count=2 {\nLOOP rd=r3 count=2 {\nOUT r2*10+r3\n}\n}\nOUT 99"
    assert trace_loops(device, body) == [0, 1, 10, 11, 99]
    body = "LOOP rd=r2 count=2 {\nOUT r2\nLOOP rd=r3 count=0 {\nOUT 55\n}\n}\nOUT 99"
    assert trace_loops(device, body) == [0, 1, 99]
    body = "LOOP rd=r2 count=2 {\nOUT r2\nLOOP rd=r3 count=3 {\n}\n}\nOUT r3"
    assert trace_loops(device, body) == [0, 1, 2]


def test_writing_the_index_in_the_body_does_not_change_the_count(device: ReferenceDevice) -> None:
    assert trace_loops(device, "LOOP rd=r2 count=3 {\nOUT r2\nADD rd=r2 a=50\n}\nOUT r2") == [0, 1, 2, 50]


def test_the_count_is_read_once(device: ReferenceDevice) -> None:
    assert trace_loops(device, "ADD rd=r4 a=2\nLOOP rd=r2 count=r4 {\nADD rd=r4 a=9\nOUT r2\n}") == [0, 1]


# --- bank and buffer commands


def test_mac16_accumulates_every_bank_over_the_burst(device: ReferenceDevice) -> None:
    weights = np.arange(16)[:, None, None] + np.arange(3)[None, :, None] + np.zeros(16)
    fill_bank(device, bf16(weights))
    scratch16(device, 0, 48)[:] = bf16(np.repeat([1.0, 2.0, 4.0], 16))
    scratch16(device, 128, 16)[:] = bf16(np.full(16, 100.0))
    channel(
        device,
        f"""
        WRGB buffer=10 count=3 source=0
        WRMAC16 accumulator=7 count=1 source=128
        MAC16 row={ROW} column=0 buffer=10 accumulator=7 count=3
        RDMAC16 accumulator=7 count=1 target=256
        """,
    )
    expected = 100 + 16 * (7 * np.arange(16) + 1 * 2 + 2 * 4)
    # Read-out rounds to 8 significant bits, to nearest even.
    rounded = (as_f32(bf16(np.zeros(16))) + expected).astype(np.float32)
    bits = rounded.view(np.uint32)
    want = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    assert scratch16(device, 256, 16).tolist() == want.tolist()


def test_mac_order_of_additions(device: ReferenceDevice) -> None:
    # Lanes 0 and 8 cancel first, then what is left survives; any other order would lose the 1.
    column = np.zeros(16)
    column[0], column[8], column[1] = 2.0**100, -(2.0**100), 1.0
    fill_bank(device, bf16(column[None, None, :]))
    scratch16(device, 0, 16)[:] = bf16(np.ones(16))
    channel(device, f"WRGB count=1\nMAC16 row={ROW} count=1\nRDMAC16 count=1 target=64")
    assert as_f32(scratch16(device, 64, 1)).tolist() == [1.0]
    # Lanes 0 and 1 meet only at the last level, after lane 1 has been absorbed.
    column[8], column[1], column[2] = 0.0, -(2.0**100), 1.0
    fill_bank(device, bf16(column[None, None, :]))
    channel(device, f"WRMAC16 count=1 source=512\nMAC16 row={ROW} count=1\nRDMAC16 count=1 target=64")
    assert as_f32(scratch16(device, 64, 1)).tolist() == [0.0]


def test_mac_touches_one_bank(device: ReferenceDevice) -> None:
    fill_bank(device, bf16(np.full((16, 2, 16), 1.0)))
    scratch16(device, 0, 32)[:] = bf16(np.full(32, 0.5))
    channel(
        device, f"WRGB count=2\nMAC bank=3 row={ROW} accumulator=1 count=2\nRDMAC16 accumulator=1 count=1 target=64"
    )
    assert as_f32(scratch16(device, 64, 16)).tolist() == [16.0 if bank == 3 else 0.0 for bank in range(16)]


def test_rdmac16_does_not_clear_and_bursts_over_accumulators(device: ReferenceDevice) -> None:
    scratch16(device, 0, 48)[:] = bf16(np.arange(48))
    channel(
        device,
        """
        WRMAC16 advance=1 accumulator=4 count=3 source=0
        RDMAC16 accumulator=4 count=3 target=128
        RDMAC16 accumulator=5 count=1 target=256
        WRMAC16 advance=same accumulator=4 count=2 source=64
        RDMAC16 accumulator=4 count=3 target=320
        """,
    )
    assert as_f32(scratch16(device, 128, 48)).tolist() == list(range(48))
    assert as_f32(scratch16(device, 256, 16)).tolist() == list(range(16, 32))
    expected = [*range(32, 48), *range(32, 48), *range(32, 48)]
    assert as_f32(scratch16(device, 320, 48)).tolist() == expected


def test_readout_makes_nan_canonical(device: ReferenceDevice) -> None:
    scratch16(device, 0, 16)[:] = [0x7F81, 0xFFC1, *([0x8000] * 14)]
    channel(device, "WRMAC16 count=1\nRDMAC16 count=1 target=32")
    assert scratch16(device, 32, 16).tolist() == [0x7FC0, 0x7FC0, *([0x8000] * 14)]


def test_reads_and_writes_of_one_bank(device: ReferenceDevice) -> None:
    data = np.arange(64, dtype=np.uint16)
    scratch16(device, 32, 64)[:] = data
    channel(
        device,
        f"""
        WR bank=2 row={ROW} column=60 count=4 source=32
        RD bank=2 row={ROW} column=61 count=2 target=1024
        RDCP bank=2 row={ROW} column=62 buffer=5 count=2
        WRCP bank=9 row={ROW} column=0 buffer=4 count=3
        """,
    )
    assert scratch16(device, 1024, 32).tolist() == list(range(16, 48))
    image = np.frombuffer(device.bank_read(ROW, 1), dtype=np.uint16).reshape(2, 16, 64, 16)
    assert (image[0, 2, 60:] == data.reshape(4, 16)).all()
    assert (image[0, 9, 1:3] == data.reshape(4, 16)[2:]).all()
    assert np.count_nonzero(image) == 63 + 32


def test_masked_write_replicates_one_element(device: ReferenceDevice) -> None:
    fill_bank(device, np.full((1, 1, 16), 7, dtype=np.uint16))
    scratch16(device, 6, 1)[:] = 0x1234
    channel(device, f"SHL rd=r2 a=1 b=15\nWRE bank=0 row={ROW} column=0 source=6 lanes=r2+5")
    row = np.frombuffer(device.bank_read(ROW, 1), dtype=np.uint16)[:16]
    assert row.tolist() == [0x1234 if lane in (0, 2, 15) else 7 for lane in range(16)]


def test_channels_are_separate(device: ReferenceDevice) -> None:
    scratch16(device, 0, 16, of=0)[:] = 1
    scratch16(device, 0, 16, of=1)[:] = 2
    channel(device, "WR bank=r1 row=r1 column=0 count=1 source=0\nRD bank=1 row=1 count=1 target=64", mask=3)
    image = np.frombuffer(device.bank_read(0, 2), dtype=np.uint16).reshape(2, 2, 16, 64, 16)
    assert image[0, 0, 0, 0].tolist() == [1] * 16
    assert image[1, 1, 1, 0].tolist() == [2] * 16
    assert np.count_nonzero(image) == 32
    assert scratch16(device, 64, 16, of=0).tolist() == [0] * 16
    assert scratch16(device, 64, 16, of=1).tolist() == [2] * 16


def test_empty_bursts_do_nothing_whatever_their_operands(device: ReferenceDevice) -> None:
    channel(device, "ADD rd=r2 a=-1\nRD bank=99 row=-1 column=500 count=r2 target=3\nMAC16 row=-7 count=r2+1")
    assert not device.scratch().any()


def test_row_commands_change_no_data(device: ReferenceDevice) -> None:
    channel(device, "ACT16 row=3\nPREA\nACT bank=1 row=2\nPRE bank=1\nREF\nTMOD mode=register\nTMOD mode=normal")
    assert not device.scratch().any()


# --- bank images


def test_bank_image_order_and_fill(device: ReferenceDevice) -> None:
    image = np.arange(2 * 2 * 16 * 64 * 16, dtype=np.uint32).astype(np.uint16).reshape(2, 2, 16, 64, 16)
    device.bank_write(30, 2, image.tobytes())
    assert device.bank_read(30, 2) == image.tobytes()
    channel(device, "RD bank=3 row=31 column=7 count=1 target=0", mask=2)
    assert scratch16(device, 0, 16, of=1).tolist() == image[1, 1, 3, 7].tolist()
    device.bank_fill_zero(30, 2, 0b10)
    image[:, 1] = 0
    assert device.bank_read(30, 2) == image.tobytes()
    assert device.bank_read(29, 1) == bytes(65536)


# --- link transfers


def test_transfers_gather_and_scatter_blocks(device: ReferenceDevice) -> None:
    out, back = bytearray(64), bytearray(range(100, 164))
    for slot, buffer in ((4, out), (6, back)):
        device.cmem_write(slot, np.frombuffer(struct.pack("<Q", device.map_host(buffer)), dtype=np.int32))
    device.scratch()[:8] = np.arange(1, 9)
    device.scratch()[BPC : BPC + 8] = np.arange(11, 19)
    text = f"""
        stream link
          XOUT slot=4 scratch=2 stride={BPC} blocks=2 bytes=3 offset=10
          XIN slot=6 scratch={2 * BPC - 2} stride=100 blocks=2 bytes=4 offset=1
          XOUT slot=4 scratch=0 blocks=0 bytes=9
          XOUT slot=4 scratch=0 blocks=2 bytes=-1
    """
    run(device, text)
    assert list(out[10:16]) == [3, 4, 5, 13, 14, 15]
    assert sum(out) == 3 + 4 + 5 + 13 + 14 + 15
    scratch = device.scratch()
    assert scratch[2 * BPC - 2 :].tolist() == [101, 102]
    assert scratch[:2].tolist() == [103, 104]  # the block wraps
    assert scratch[98:102].tolist() == [105, 106, 107, 108]


# --- signals


def test_streams_meet_at_signals(device: ReferenceDevice) -> None:
    text = """
        stream link
          WAIT signal=1 value=2
          LDA rd=r2 index=0
          STA index=1 value=r2*2
          SIGNAL signal=2
        stream vector
          WAIT signal=2 value=1
          LDA rd=r2 index=1
          STA index=2 value=r2+1
        stream channel mask=0x3
          LOOP rd=r3 count=2 {
            STA index=r1*8 value=r3+20
            SIGNAL signal=1
          }
    """
    for seed in range(20):
        device.cmem_write(0, [0, 0, 0])
        run(device, text, seed=seed)
        assert device.cmem_read(0, 3).tolist() == [21, 42, 43]


def test_a_signal_counts_the_slowest_channel(device: ReferenceDevice) -> None:
    text = """
        stream channel mask=0x3
          LOOP rd=r2 count=r1*-1+2 {
            SIGNAL signal=1
          }
        stream link
          WAIT signal=1 value=COUNT
          STA index=0 value=1
    """
    run(device, text.replace("COUNT", "1"))
    with pytest.raises(Fault) as caught:
        run(device, text.replace("COUNT", "2"))
    assert (caught.value.stream, caught.value.instruction) == (1, 0)
    assert "deadlock" in caught.value.reason
    run(device, text.replace("COUNT", "-5"))


def test_shared_registers_start_at_zero(device: ReferenceDevice) -> None:
    text = """
        stream vector
          GETS rd=r2 shared=3
          STA index=0 value=r2
          VPASS n0=1 n1=1 n2=4 high=4 {
            scalars kind=f32 value=0x40000000
            reductions kind=sum value=k0 shared=3
          }
          GETS rd=r2 shared=3
          STA index=1 value=r2
    """
    for _ in range(2):
        shared = run(device, text)
        assert shared[3] == np.float32(8.0).view(np.int32)
        assert device.cmem_read(0, 2).tolist() == [0, shared[3]]
