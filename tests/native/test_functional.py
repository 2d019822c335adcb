"""The native functional model has the bits of the reference, whatever the threads and SIMD variant."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_programs import Case, Outcome, faulting_case, random_case, run_case, special_bf16
from wordline import _native
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.affine import affine
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import Machine, load_machine
from wordline.sim.fault import Fault
from wordline.sim.reference import ReferenceDevice

VARIANTS = tuple(_native.build_info()["simd"])
CHIP = load_machine("gddr6-aim-chip", {"organisation.rows": 64})
CARD = load_machine(
    "gddr6-aim-card", {"organisation.rows": 64, "organisation.channels": 5, "bank_unit.accumulators": 7}
)
ISA = instruction_set("gddr6-aim")


def native(machine: Machine, threads: int = 2, simd: str = "auto") -> _native.FunctionalModel:
    return _native.FunctionalModel(machine.flat(), threads, simd)


def instr(name: str, /, **values: object) -> Instr:
    return make(ISA, name, **values)


def image(*streams: tuple[Engine, int, list[Instr]]) -> bytes:
    return Program(ISA, tuple(Stream(engine, mask, tuple(instrs)) for engine, mask, instrs in streams)).to_bytes()


def reference_outcome(machine: Machine, case: Case) -> Outcome:
    device = ReferenceDevice(machine)
    return run_case(device, case, device.execute)


def native_outcome(machine: Machine, case: Case, threads: int, simd: str) -> Outcome:
    device = native(machine, threads, simd)
    return run_case(device, case, device.execute)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 32), st.sampled_from(VARIANTS), st.integers(1, 3))
def test_random_programs_have_the_bits_of_the_reference(seed: int, simd: str, threads: int) -> None:
    case = random_case(seed, CHIP)
    assert reference_outcome(CHIP, case).difference(native_outcome(CHIP, case, threads, simd)) == ""


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 32), st.sampled_from(VARIANTS), st.integers(1, 6))
def test_other_machines_too(seed: int, simd: str, threads: int) -> None:
    case = random_case(seed, CARD)
    assert reference_outcome(CARD, case).difference(native_outcome(CARD, case, threads, simd)) == ""


@pytest.mark.slow
@settings(deadline=None, max_examples=1500)
@given(st.integers(0, 1 << 48))
def test_many_random_programs(seed: int) -> None:
    case = random_case(seed, CHIP, phases=5, length=20)
    expected = reference_outcome(CHIP, case)
    for threads, simd in ((2, VARIANTS[-1]), (1, VARIANTS[seed % len(VARIANTS)])):
        assert expected.difference(native_outcome(CHIP, case, threads, simd)) == ""


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 32))
def test_all_variants_and_thread_counts_agree(seed: int) -> None:
    case = random_case(seed, CARD, phases=6, length=20)
    first = native_outcome(CARD, case, 1, VARIANTS[0])
    for threads, simd in ((2, VARIANTS[0]), (5, VARIANTS[-1]), *((3, simd) for simd in VARIANTS)):
        assert first.difference(native_outcome(CARD, case, threads, simd)) == ""


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 1 << 32), st.integers(1, 2))
def test_faults_are_those_of_the_reference(seed: int, threads: int) -> None:
    case, stream, channel, index = faulting_case(seed, CHIP)
    texts = []
    for device in (ReferenceDevice(CHIP), native(CHIP, threads)):
        with pytest.raises(Fault) as caught:
            run_case(device, case, device.execute)
        fault = caught.value
        assert (fault.code, fault.stream, fault.channel, fault.instruction) == ("device-fault", stream, channel, index)
        texts.append(fault.reason)
    # Host addresses are the device's own choice, and so is the address in the text.
    assert texts[0] == texts[1] or all(text.startswith("host address") for text in texts)


def test_the_lowest_stream_and_channel_is_reported_when_several_fault() -> None:
    def faulting() -> list[Instr]:
        return [instr("MAC16", row=64, count=1)]

    program = image(
        (Engine.CHANNEL, 2, faulting()),
        (Engine.CHANNEL, 1, faulting()),
        (Engine.LINK, 0, [instr("LDM", rd=2, address=-1)]),
    )
    for threads in (1, 2):
        device = native(CHIP, threads)
        with pytest.raises(Fault) as caught:
            device.execute(device.load_program(program))
        assert (caught.value.stream, caught.value.channel) == (0, 1)
        assert caught.value.reason == "row 64 is outside 0..63"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_deadlock_is_a_fault(threads: int) -> None:
    program = image(
        (Engine.CHANNEL, 3, [instr("SIGNAL", signal=1), instr("WAIT", signal=2, value=1), instr("SIGNAL", signal=3)]),
        (
            Engine.VECTOR,
            0,
            [instr("WAIT", signal=1, value=1), instr("WAIT", signal=3, value=1), instr("SIGNAL", signal=2)],
        ),
    )
    device = native(CHIP, threads)
    slot = device.load_program(program)
    for _ in range(200):  # whatever the timing of the threads
        with pytest.raises(Fault, match="deadlock") as caught:
            device.execute(slot)
        assert (caught.value.stream, caught.value.channel, caught.value.instruction) == (0, 0, 1)


def test_streams_that_signal_each_other_often_lose_no_signal() -> None:
    rounds = 20_000
    ping = [
        instr("LOOP", rd=2, body=2, count=rounds),
        instr("SIGNAL", signal=1),
        instr("WAIT", signal=2, value=affine(1, (2, 1))),
    ]
    pong = [
        instr("LOOP", rd=2, body=2, count=rounds),
        instr("WAIT", signal=1, value=affine(1, (2, 1))),
        instr("SIGNAL", signal=2),
    ]
    device = native(CHIP)
    device.execute(device.load_program(image((Engine.CHANNEL, 3, ping), (Engine.VECTOR, 0, pong))))


def test_an_endless_program_ends_at_its_limit() -> None:
    endless = [
        instr("LOOP", rd=2, body=2, count=(1 << 23) - 1),
        instr("LOOP", rd=3, body=1, count=(1 << 23) - 1),
        instr("ADD", rd=4),
    ]
    device = native(CHIP)
    with pytest.raises(Fault, match="instruction limit"):
        device.execute(device.load_program(image((Engine.LINK, 0, endless))), instruction_limit=10_000)


@pytest.mark.parametrize("simd", VARIANTS)
def test_signed_zeros_subnormals_and_nans_of_the_bank_unit(simd: str) -> None:
    rng = np.random.default_rng(5)
    weights = special_bf16(rng, (1, 2, 16, 64, 16))
    weights[0, 0] = rng.integers(0, 0x0100, (16, 64, 16))  # products far below the normal range
    device, reference = native(CHIP, 2, simd), ReferenceDevice(CHIP)
    program = image(
        (
            Engine.CHANNEL,
            3,
            [
                instr("WRGB", buffer=0, count=64, source=0),
                *(instr("MAC16", row=0, column=c, buffer=c, accumulator=c % 32, count=1 + c % 3) for c in range(61)),
                instr("RDMAC16", accumulator=0, count=32, target=2048),
            ],
        )
    )
    results = []
    for d in (device, reference):
        d.bank_write(0, 1, weights.tobytes())
        vector = d.scratch().view(np.uint16)
        vector[:1024] = np.random.default_rng(6).integers(0x3000, 0x3F80, 1024)
        vector[32768 : 32768 + 1024] = special_bf16(np.random.default_rng(7), (1024,))
        d.execute(d.load_program(program))
        results.append(bytes(d.scratch()))
    assert results[0] == results[1]
    assert np.frombuffer(results[0], np.uint16)[1024:1536].any()


def test_flush_to_zero_of_the_callers_thread_does_not_reach_the_device() -> None:
    torch = pytest.importorskip("torch")
    device = native(CHIP, 1)
    program = image(
        (
            Engine.VECTOR,
            0,
            [
                instr(
                    "VPASS",
                    n0=1,
                    n1=1,
                    n2=4,
                    high=4,
                    operands=[{"base": 0, "layout": {"s2": 4, "dtype": 1}}],
                    operations=[{"operation": {"op": 0, "a": 0, "b": 0}}],
                    result=[{"base": 64, "layout": {"s2": 4, "dtype": 1}, "broadcast": {"value": 12}}],
                )
            ],
        )
    )
    slot = device.load_program(program)
    device.scratch().view(np.uint32)[:4] = 3
    torch.set_flush_denormal(True)
    try:
        device.execute(slot)
    finally:
        torch.set_flush_denormal(False)
    assert device.scratch().view(np.uint32)[16:20].tolist() == [6] * 4


def test_bank_images_come_back_and_can_be_zeroed() -> None:
    device = native(CARD)
    data = np.random.default_rng(1).integers(0, 1 << 16, (3, 5, 16, 64, 16), dtype=np.uint16)
    device.bank_write(61, 3, data.tobytes())
    assert device.bank_read(61, 3) == data.tobytes()
    device.bank_fill_zero(62, 1, 0b10010)
    data[1, [1, 4]] = 0
    assert device.bank_read(61, 3) == data.tobytes()
    assert not any(device.bank_read(0, 1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d: d.bank_write(63, 2, b""), "rows 63..65 of 64"),
        (lambda d: d.bank_write(0, 1, b"1234"), "1 rows need 65536 bytes, got 4"),
        (lambda d: d.bank_read(-1, 1), "rows -1..0 of 64"),
        (lambda d: d.bank_read(0, 1 << 60), "of 64"),
        (lambda d: d.bank_fill_zero(1, 64, 1), "of 64"),
        (lambda d: d.cmem_write(524288, np.zeros(1, np.int32)), "of 524288"),
        (lambda d: d.cmem_read(0, -1), "of 524288"),
        (lambda d: d.execute(0), "slot 0 holds no program"),
        (lambda d: d.unload_program(-1), "holds no program"),
        (lambda d: d.unmap_host(4096), "no host window is open"),
    ],
)
def test_what_a_caller_gets_wrong_is_one_clear_error(call: object, words: str) -> None:
    with pytest.raises(WordlineError) as caught:
        call(native(CHIP))  # type: ignore[operator]
    assert words in str(caught.value)


def test_machines_are_checked() -> None:
    flat = CHIP.flat()
    missing = {key: value for key, value in flat.items() if key != "timing.nRP"}
    for machine, words in (
        (missing, "lacks timing.nRP"),
        (flat | {"organisation.rows": "many"}, "organisation.rows must be an integer"),
        (flat | {"organisation.banks": 8}, "organisation.banks = 16 only"),
        (flat | {"bank_unit.readout": "fp32"}, "bank_unit.readout = bf16 only"),
    ):
        with pytest.raises(WordlineError) as caught:
            _native.FunctionalModel(machine)
        assert caught.value.code == "bad-machine"
        assert words in str(caught.value)


def test_models_run_as_the_knobs_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLINE_THREADS", "1")
    assert _native.FunctionalModel(CHIP.flat()).threads == 1
    monkeypatch.setenv("WORDLINE_THREADS", "64")
    assert _native.FunctionalModel(CHIP.flat()).threads == 2  # one a channel at most
    with pytest.raises(WordlineError, match="cannot run the SIMD variant 'mmx'"):
        native(CHIP, 1, "mmx")


def test_host_windows_are_checked_and_kept_alive() -> None:
    device = native(CHIP)
    buffer = bytearray(64)
    address = device.map_host(buffer)
    read_only = device.map_host(bytes(64))
    out = [instr("XOUT", slot=0, scratch=0, blocks=1, bytes=64), instr("XOUT", slot=2, scratch=0, blocks=1, bytes=64)]
    slot = device.load_program(image((Engine.LINK, 0, out)))
    device.scratch()[:64] = 7
    device.cmem_write(0, np.array([address, read_only], np.uint64).view(np.int32))
    with pytest.raises(Fault, match="no open window") as caught:  # the second one is read-only
        device.execute(slot)
    assert caught.value.instruction == 1
    assert buffer == b"\7" * 64
    device.unmap_host(address)
    with pytest.raises(Fault, match="no open window") as caught:
        device.execute(slot)
    assert caught.value.instruction == 0


def test_threads_of_the_host_may_share_a_model() -> None:
    device = native(CHIP)
    add = [instr("LOOP", rd=2, body=3, count=3000), instr("LDA", rd=3, index=0)]
    add += [instr("ADD", rd=3, a=affine(0, (3, 1)), b=1), instr("STA", index=0, value=affine(0, (3, 1)))]
    slot = device.load_program(image((Engine.LINK, 0, add)))
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(device.execute, slot) for _ in range(40)]
        reads = [pool.submit(device.cmem_read, 0, 1) for _ in range(40)]
        for future in (*runs, *reads):
            future.result()
    assert device.cmem_read(0, 1)[0] == 40 * 3000
