"""Device strings, memory allocators, resident models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.artifacts import tiny_contents
from tests.support.devices import ScriptedDevice, scripted
from wordline.artifact import Artifact, open_artifact, write_artifact
from wordline.errors import WordlineError
from wordline.machines import load_machine
from wordline.runtime import Device, DeviceSpec, Residency, list_devices, open_device, parse_device
from wordline.runtime.device_interface import Register, header
from wordline.runtime.memory import PagePool, RangeAllocator, row_ranges


def zeros(token: int, position: int) -> np.ndarray:
    return np.zeros(20, np.float32)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(write_artifact(tmp_path / "tiny.wl", tiny_contents()))


def test_device_strings() -> None:
    spec = parse_device("sim:gddr6-aim-chip?set=bank_unit.accumulators=2&set=timing.nRP=24")
    assert spec.driver == "sim"
    assert spec.machine.bank_unit.accumulators == 2
    assert spec.machine.timing.nRP == 24
    assert parse_device(str(spec)).machine.hash == spec.machine.hash
    assert str(parse_device("gddr6-aim-card")) == "sim:gddr6-aim-card"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "bad-device-string", "names no machine"),
        ("sim:", "bad-device-string", "names no machine"),
        (":gddr6-aim-chip", "bad-device-string", "names no driver"),
        ("sim:gddr6-aim-chip?x=1", "bad-device-string", "'x=1' is not set=path=value"),
        ("sim:gddr6-aim-chip?set=a.b", "bad-device-string", "'set=a.b' is not set=path=value"),
        ("sim:gddr6-aim-chip?set=bank_unit.accumulator=2", "unknown-field", "accumulators"),
        ("sim:gddr6-aim-cihp", "unknown-machine", "gddr6-aim-chip"),
        ("smi:gddr6-aim-chip", "unknown-driver", "sim:MACHINE"),
    ],
)
def test_wrong_device_strings_are_one_clear_error(text: str, code: str, words: str) -> None:
    with pytest.raises(WordlineError) as caught:
        open_device(text) if code == "unknown-driver" else parse_device(text)
    assert caught.value.code == code
    assert caught.value.remedy
    assert words in str(caught.value)


def test_every_driver_is_listed_with_every_machine() -> None:
    names = [device.name for device in list_devices()]
    assert {"sim:gddr6-aim-chip", "sim:gddr6-aim-card", "null:gddr6-aim-chip", "null:gddr6-aim-card"} <= set(names)


def test_a_device_of_another_machine_or_interface_is_refused() -> None:
    chip, card = load_machine("gddr6-aim-chip"), load_machine("gddr6-aim-card")
    with pytest.raises(WordlineError, match="built as another machine") as caught:
        Device(DeviceSpec("script", card), ScriptedDevice(chip, zeros))
    assert caught.value.code == "machine-mismatch"
    script = ScriptedDevice(chip, zeros)
    script._registers[Register.INTERFACE_VERSION] = 77
    with pytest.raises(WordlineError, match="interface version 77"):
        Device(DeviceSpec("script", chip), script)


def test_the_header_has_every_register() -> None:
    text = header()
    assert "kRingTail = 0x50," in text
    assert "sizeof(Descriptor) == 64 && sizeof(Completion) == 32" in text


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60))
def test_ranges_never_overlap(actions: list[tuple[bool, int]]) -> None:
    allocator, live = RangeAllocator(100, "words"), {}
    for allocate, size in actions:
        if not allocate and live:
            first = sorted(live)[size % len(live)]
            del live[first]
            allocator.free(first)
            continue
        taken = sorted((f, f + n) for f, n in live.items())
        gaps = zip([0, *(e for _, e in taken)], [*(f for f, _ in taken), 100], strict=True)
        if max(b - a for a, b in gaps) < size:
            with pytest.raises(WordlineError, match=f"{size} words in a row are needed"):
                allocator.allocate(size)
            continue
        first = allocator.allocate(size)
        assert all(first + size <= f or f + n <= first for f, n in live.items())
        assert 0 <= first <= 100 - size
        live[first] = size
    with pytest.raises(ValueError, match="not the start"):
        allocator.free(99 if 99 not in live else 100)


def test_pages_are_all_or_nothing_and_come_back() -> None:
    pool = PagePool(2, 10, 21, 4)
    assert pool.pages_per_channel == 2
    assert pool.allocate([1, 2]) == [[10], [10, 14]]
    with pytest.raises(WordlineError, match="on channel 1, 0 of 2 are free"):
        pool.allocate([1, 1])
    assert pool.free_pages(0) == 1
    pool.free([(1, 10)])
    assert pool.allocate([1, 1]) == [[14], [10]]


def test_neighbouring_pages_are_zeroed_in_one_go() -> None:
    assert row_ranges([8, 4, 20, 0], 4) == [(0, 12), (20, 4)]
    assert row_ranges([], 4) == []


def test_a_resident_model_is_loaded_once_and_shared(artifact: Artifact) -> None:
    device, script = scripted(artifact.machine, zeros)
    residency = Residency(device)
    first, second = residency.acquire(artifact), residency.acquire(artifact)
    assert first is second
    assert script.log == [("write", 0, 2)]
    assert artifact.weights is not None
    assert b"".join(script.rows[r].tobytes() for r in (0, 1)) == bytes(artifact.weights)


def test_another_model_waits_until_the_device_is_free(artifact: Artifact, tmp_path: Path) -> None:
    other = open_artifact(write_artifact(tmp_path / "other.wl", tiny_contents(tokenizer_json=None, tokenizer=None)))
    device, script = scripted(artifact.machine, zeros)
    residency = Residency(device)
    model = residency.acquire(artifact)
    with pytest.raises(WordlineError, match="holds 'tiny', which 1 sessions use") as caught:
        residency.acquire(other)
    assert caught.value.code == "device-occupied"
    residency.release(model)
    residency.acquire(other)
    assert script.log == [("write", 0, 2)] * 2


def test_residency_survives_a_reset(artifact: Artifact) -> None:
    device, script = scripted(artifact.machine, zeros)
    model = Residency(device).acquire(artifact)
    device.reset()
    assert script.log == [("write", 0, 2)] * 2
    assert sorted(script.rows) == [0, 1]
    device.queue.execute(model.executables["decode"].slot, 0, device.mode()).wait()


def test_weights_must_be_bound_to_run_but_not_to_time(tmp_path: Path) -> None:
    unbound = open_artifact(write_artifact(tmp_path / "u.wl", tiny_contents(weights=None)))
    device, script = scripted(unbound.machine, zeros)
    with pytest.raises(WordlineError, match="can be timed, not run") as caught:
        Residency(device).acquire(unbound)
    assert "null:gddr6-aim-chip" in str(caught.value)
    Residency(device).acquire(unbound, functional=False)
    assert script.log == []


def test_an_artifact_of_another_machine_is_refused(artifact: Artifact) -> None:
    device, _ = scripted(load_machine("gddr6-aim-chip", {"timing.nRP": 24}), zeros)
    with pytest.raises(WordlineError, match=r"'gddr6-aim-chip', the device is 'gddr6-aim-chip\+timing.nRP=24'"):
        Residency(device).acquire(artifact)
