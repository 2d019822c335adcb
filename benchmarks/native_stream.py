"""How fast the functional model streams weights, against the memory bandwidth of this machine.

``python -m benchmarks.native_stream``. Host times, so the numbers vary with the machine and its load; the ratio is what
matters. The reading kernel takes the same rows with the same threads and does nothing but load them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from wordline import _native
from wordline.isa import instruction_set
from wordline.isa.affine import affine
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import load_machine

MACHINE = load_machine("gddr6-aim-chip")
ISA = instruction_set(MACHINE.generation)
BLOCK_ROWS = 64
SCALARS = 4_000_000


def image(instrs: list[Instr]) -> bytes:
    """A program with one stream for all channels."""
    mask = (1 << MACHINE.organisation.channels) - 1
    return Program(ISA, (Stream(Engine.CHANNEL, mask, tuple(instrs)),)).to_bytes()


def best(call: Callable[[], object], repeats: int) -> float:
    """The shortest of some timings, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(threads: int, simd: str, rows: int, repeats: int) -> tuple[float, float, float]:
    """(GB/s of MAC16 over all columns of `rows` rows, GB/s of reading them, ns of one scalar instruction)."""
    columns, buffer = MACHINE.organisation.columns, MACHINE.buffer.columns
    assert columns <= buffer
    device = _native.FunctionalModel(MACHINE.flat(), threads, simd)
    row_bytes = MACHINE.organisation.device_row_bytes
    data = np.random.default_rng(0).integers(0x3C00, 0x4000, BLOCK_ROWS * row_bytes // 2, dtype=np.uint16)
    for row in range(0, rows, BLOCK_ROWS):
        device.bank_write(row, BLOCK_ROWS, data)
    device.scratch().view(np.uint16)[:] = 0x3F80
    stream = [
        make(ISA, "WRGB", buffer=0, count=columns, source=0),
        make(ISA, "LOOP", rd=2, body=1, count=rows),
        make(ISA, "MAC16", row=affine(0, (2, 1)), count=columns),
    ]
    scalars = [
        make(ISA, "LOOP", rd=2, body=4, count=SCALARS // 4),
        *(make(ISA, "ADD", rd=3 + i, a=affine(1, (2, 3)), b=affine(0, (3 + i, 1))) for i in range(4)),
    ]
    gigabytes = rows * row_bytes / 1e9
    mac, scalar = device.load_program(image(stream)), device.load_program(image(scalars))
    return (
        gigabytes / best(lambda: device.execute(mac), repeats),
        gigabytes / best(lambda: device.read_stream(0, rows), repeats),
        best(lambda: device.execute(scalar), repeats) / SCALARS * 1e9,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=270, help="weights streamed (SmolLM2-135M: 270)")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    row_bytes = MACHINE.organisation.device_row_bytes
    rows = -(-options.megabytes * 1_000_000 // row_bytes // BLOCK_ROWS) * BLOCK_ROWS
    print(f"{rows} rows, {rows * row_bytes / 1e6:.0f} MB; host time, best of {options.repeats}")
    print("threads  simd      MAC16 GB/s  read GB/s  of read  ns/scalar")
    for threads in range(1, MACHINE.organisation.channels + 1):
        for simd in _native.build_info()["simd"]:
            mac, read, scalar = measure(threads, simd, rows, options.repeats)
            print(f"{threads:7}  {simd:8}  {mac:10.1f}  {read:9.1f}  {mac / read:6.0%}  {scalar:9.2f}")


if __name__ == "__main__":
    main()
