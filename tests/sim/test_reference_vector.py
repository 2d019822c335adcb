"""Vector passes of the reference device, against results worked out by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from wordline.isa import instruction_set
from wordline.isa.assemble import assemble
from wordline.machines import load_machine
from wordline.sim.reference import ReferenceDevice

ISA = instruction_set("gddr6-aim")
MACHINE = load_machine("gddr6-aim-chip")
BPC = MACHINE.scratch.bytes_per_channel
F32 = npt.NDArray[np.float32]


@pytest.fixture
def device() -> ReferenceDevice:
    return ReferenceDevice(MACHINE)


def vpass(device: ReferenceDevice, head: str, *entries: str, before: str = "") -> npt.NDArray[np.int32]:
    body = "\n".join(entries)
    text = f"stream vector\n{before}\nVPASS {head} {{\n{body}\n}}"
    return device.execute(device.load_program(assemble(ISA, text)))


def f32(device: ReferenceDevice, offset: int, count: int) -> F32:
    return device.scratch()[offset : offset + 4 * count].view(np.float32)


def bf16(device: ReferenceDevice, offset: int, count: int) -> npt.NDArray[np.uint16]:
    return device.scratch()[offset : offset + 2 * count].view(np.uint16)


def as_float(word: np.int32) -> float:
    return float(np.array(word).view(np.float32))


def test_arithmetic_and_values(device: ReferenceDevice) -> None:
    f32(device, 0, 4)[:] = [1, 2, 3, 4]
    f32(device, 64, 4)[:] = [10, 20, 30, 40]
    vpass(
        device,
        "n0=1 n1=1 n2=4 high=4",
        "operands base=0 s2=4 dtype=f32",
        "operands base=64 s2=4 dtype=f32",
        "scalars kind=f32 value=0x40000000",  # 2
        "operations op=fma a=x0 b=k0 c=x1",
        "operations op=sub a=t0 b=x0",
        "result base=128 s2=4 dtype=f32 value=t1",
    )
    assert f32(device, 128, 4).tolist() == [11, 22, 33, 44]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("op=add a=x0 b=x1", [3.0, 2.0, -4.0]),
        ("op=sub a=x0 b=x1", [-1.0, 6.0, 0.0]),
        ("op=mul a=x0 b=x1", [2.0, -8.0, 4.0]),
        ("op=max a=x0 b=x1", [2.0, 4.0, -2.0]),
        ("op=less a=x0 b=x1", [1.0, 0.0, 0.0]),
        ("op=select a=x2 b=x0 c=x1", [2.0, 4.0, -2.0]),
        ("op=round_bf16 a=x3", [1.0, 1.0078125, 256.0]),
        ("op=recip a=x1", [0.5, -0.5, -0.5]),
        ("op=exp a=x2", [1.0, float(np.float32(np.e)), 1.0]),
        ("op=sin a=x2", [0.0, None, 0.0]),
        ("op=cos a=x2", [1.0, None, 1.0]),
        ("op=tanh a=x2", [0.0, None, 0.0]),
        ("op=sigmoid a=x2", [0.5, None, 0.5]),
        ("op=rsqrt a=x3", [1.0, None, 0.0625]),
    ],
)
def test_each_operation(device: ReferenceDevice, operation: str, expected: list[float | None]) -> None:
    f32(device, 0, 3)[:] = [1, 4, -2]
    f32(device, 16, 3)[:] = [2, -2, -2]
    f32(device, 32, 3)[:] = [0, 1, -0.0]
    f32(device, 48, 3)[:] = [1, 1.0069, 256]
    operands = [f"operands base={base} s2=4 dtype=f32" for base in (0, 16, 32, 48)]
    result = "result base=64 s2=4 dtype=f32 value=t0"
    vpass(device, "n0=1 n1=1 n2=3 high=3", *operands, f"operations {operation}", result)
    for got, want in zip(f32(device, 64, 3).tolist(), expected, strict=True):
        assert want is None or got == want


def test_formats(device: ReferenceDevice) -> None:
    bf16(device, 0, 2)[:] = [0x3F80, 0xC000]
    device.scratch()[16:24].view(np.int32)[:] = [16777219, -3]
    vpass(
        device,
        "n0=1 n1=1 n2=2 high=2",
        "operands base=0 s2=2 dtype=bf16",
        "operands base=16 s2=4 dtype=i32",
        "operations op=add a=x0 b=x1",
        "result base=32 s2=4 dtype=f32 value=t0",
    )
    assert f32(device, 32, 2).tolist() == [16777220.0, -5.0]
    f32(device, 64, 4)[:] = [1.00390625, 1.01171875, np.nan, -0.0]  # two ties, to even
    copy = ("operands base=64 s2=4 dtype=f32", "result base=96 s2=2 dtype=bf16 value=x0")
    vpass(device, "n0=1 n1=1 n2=4 high=4", *copy)
    assert bf16(device, 96, 4).tolist() == [0x3F80, 0x3F82, 0x7FC0, 0x8000]


def test_stored_nans_are_canonical(device: ReferenceDevice) -> None:
    device.scratch()[0:4].view(np.uint32)[:] = 0xFFC12345
    vpass(device, "n0=1 n1=1 n2=1 high=1", "operands base=0 s2=4 dtype=f32", "result base=8 s2=4 dtype=f32 value=x0")
    assert device.scratch()[8:12].view(np.uint32)[0] == 0x7FC00000


def test_scalars(device: ReferenceDevice) -> None:
    shared = vpass(
        device,
        "n0=1 n1=1 n2=1 high=1",
        "scalars kind=f32 value=0xc0200000",  # -2.5
        "scalars kind=register_i32 value=5",
        "scalars kind=shared_i32 value=9",
        "scalars kind=shared_f32 value=9",
        "operations op=add a=k0 b=k1",
        "reductions kind=sum value=t0 shared=1",
        "reductions kind=max value=k2 shared=2",
        before="""
            ADD rd=r5 a=-7
            VPASS n0=1 n1=1 n2=8 high=8 {
              scalars kind=f32 value=0x3f800000
              reductions kind=argmax value=k0 shared=9
            }
        """,
    )
    assert as_float(shared[1]) == -9.5
    assert as_float(shared[2]) == 0.0


def test_strides_over_channels_rows_and_repeats(device: ReferenceDevice) -> None:
    for channel in range(2):
        bf16(device, channel * BPC + 100, 4)[:] = [0x3F80 + channel * 16 + i for i in range(4)]
    layout = f"operands base=100 s0=4 s1={BPC} s2=2"
    vpass(device, "n0=2 n1=2 n2=2 high=8", layout, "result base=512 s0=8 s1=4 s2=2 value=x0")
    first = [0x3F80, 0x3F81, 0x3F90, 0x3F91]
    assert bf16(device, 512, 8).tolist() == first + [v + 2 for v in first]
    # Stride 0 repeats, negative strides go backwards, addresses wrap at the end of scratch and below zero.
    vpass(device, "n0=2 n1=1 n2=2 high=4", "operands base=102 s0=0 s2=-2", "result base=600 s0=4 s2=2 value=x0")
    assert bf16(device, 600, 4).tolist() == [0x3F81, 0x3F80] * 2
    vpass(device, "n0=1 n1=1 n2=2 high=2", f"operands base={100 - 2 * BPC} s2=2", f"result base={-2} s2=2 value=x0")
    assert bf16(device, 2 * BPC - 2, 1).tolist() == [0x3F80]
    assert bf16(device, 0, 1).tolist() == [0x3F81]


def test_rotate_half(device: ReferenceDevice) -> None:
    f32(device, 0, 12)[:] = np.arange(12)
    vpass(
        device,
        "n0=2 n1=1 n2=6 high=12",
        "operands base=0 s0=24 s2=4 dtype=f32 rotate=1",
        "result base=64 s0=24 s2=4 dtype=f32 value=x0",
    )
    assert f32(device, 64, 12).tolist() == [-3, -4, -5, 0, 1, 2, -9, -10, -11, 6, 7, 8]
    assert np.signbit(f32(device, 64, 4)).tolist() == [True, True, True, False]


def test_masked_elements_are_stored_as_zero_and_skipped(device: ReferenceDevice) -> None:
    f32(device, 0, 6)[:] = [9, 1, 5, 2, 9, np.nan]
    f32(device, 64, 6)[:] = 77
    shared = vpass(
        device,
        "n0=1 n1=2 n2=3 low=1 high=4",
        "operands base=0 s1=12 s2=4 dtype=f32",
        "result base=64 s1=12 s2=4 dtype=f32 value=x0",
        "reductions kind=max value=x0 shared=0",
        "reductions kind=argmax value=x0 shared=1",
    )
    assert f32(device, 64, 6).tolist() == [0, 1, 5, 2, 0, 0]
    assert as_float(shared[0]) == 5.0
    assert shared[1] == 2


def test_reductions_of_nothing(device: ReferenceDevice) -> None:
    for head in ("n0=1 n1=1 n2=4 low=2 high=2", "n0=0 n1=1 n2=4 high=4", "n0=8388607 n1=-5 n2=8388607"):
        kinds = ("reductions kind=sum value=x0 shared=0", "reductions kind=max value=x0 shared=1")
        shared = vpass(device, head, "operands base=0 s2=4 dtype=f32", *kinds)
        assert shared[:2].tolist() == [0, np.float32(-np.inf).view(np.int32)]
        argmax = "reductions kind=argmax value=x0 shared=2"
        assert vpass(device, head, "operands base=0 s2=4 dtype=f32", argmax)[2] == 0


def test_sum_order(device: ReferenceDevice) -> None:
    # Elements 0 and 16 share a strand; element 8 joins in the first step of the tree; 1 in the last.
    values = np.zeros(32, dtype=np.float32)
    values[0], values[16], values[1], values[8] = 2.0**60, -(2.0**60), 3.0, 4.0
    f32(device, 0, 32)[:] = values
    operand = "operands base=0 s2=4 dtype=f32"
    shared = vpass(device, "n0=1 n1=1 n2=32 high=32", operand, "reductions kind=sum value=x0 shared=0")
    assert as_float(shared[0]) == 7.0
    f32(device, 0, 32)[16], f32(device, 0, 32)[9] = 0.0, -(2.0**60)
    # Now 2^60 absorbs the 4 of element 8, and -2^60 the 3 of element 1, before they meet.
    shared = vpass(device, "n0=1 n1=1 n2=32 high=32", operand, "reductions kind=sum value=x0 shared=0")
    assert as_float(shared[0]) == 0.0


def test_nan_in_reductions(device: ReferenceDevice) -> None:
    device.scratch()[:16].view(np.uint32)[:] = [0x40000000, 0xFF812345, 0x7FC00000, 0x41000000]
    shared = vpass(
        device,
        "n0=1 n1=1 n2=4 high=4",
        "operands base=0 s2=4 dtype=f32",
        "reductions kind=sum value=x0 shared=0",
        "reductions kind=max value=x0 shared=1",
    )
    assert shared[:2].tolist() == [0x7FC00000, 0x7FC00000]
    argmax = "reductions kind=argmax value=x0 shared=0"
    assert vpass(device, "n0=1 n1=1 n2=4 high=4", "operands base=0 s2=4 dtype=f32", argmax)[0] == 1


def test_broadcast_to_channels(device: ReferenceDevice) -> None:
    f32(device, 0, 2)[:] = [1.5, 2.5]
    source = "operands base=0 s2=4 dtype=f32"
    vpass(device, "n0=1 n1=1 n2=2 high=2", source, f"result base={BPC + 256} s2=2 channels=0x3 value=x0")
    for channel in range(2):
        assert bf16(device, channel * BPC + 256, 2).tolist() == [0x3FC0, 0x4020]
    vpass(device, "n0=1 n1=1 n2=2 high=2", source, "result base=300 s2=2 channels=0x2 value=x0")
    assert not bf16(device, 300, 2).any()
    assert bf16(device, BPC + 300, 2).tolist() == [0x3FC0, 0x4020]


def test_a_pass_reads_before_it_writes_and_keeps_the_last_of_equal_addresses(device: ReferenceDevice) -> None:
    f32(device, 0, 4)[:] = [1, 2, 3, 4]
    source = "operands base=0 s2=4 dtype=f32"
    vpass(device, "n0=1 n1=1 n2=4 high=4", source, "result base=4 s2=4 dtype=f32 value=x0")
    assert f32(device, 0, 5).tolist() == [1, 1, 2, 3, 4]
    vpass(device, "n0=1 n1=1 n2=4 high=4", source, "result base=64 s2=0 dtype=f32 value=x0")
    assert f32(device, 64, 2).tolist() == [3, 0]


def test_extents_and_bounds_may_come_from_registers(device: ReferenceDevice) -> None:
    f32(device, 0, 8)[:] = np.arange(8)
    shared = vpass(
        device,
        "n0=1 n1=1 n2=r2 low=r2-3 high=r2-1",
        "operands base=r2*4-32 s2=4 dtype=f32",
        "reductions kind=sum value=x0 shared=0",
        before="ADD rd=r2 a=8",
    )
    assert as_float(shared[0]) == 5.0 + 6.0
