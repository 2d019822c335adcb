"""The real model on the native simulated device, against the same models behind Python's side of the interface."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.python_sim import PythonSim
from wordline.artifact import Artifact
from wordline.engine import Session, Tokenizer, Want
from wordline.runtime import Device, DeviceSpec, Residency, open_device

TEXT = "The quick brown fox jumps over the lazy dog. A word line is"


@pytest.fixture(scope="module")
def tokens(smollm2_artifact: Artifact) -> list[int]:
    return Tokenizer(smollm2_artifact).encode(TEXT)


def test_timing_only_runs_give_the_cycles_of_functional_runs(smollm2_artifact: Artifact, tokens: list[int]) -> None:
    devices = [open_device("sim:gddr6-aim-chip"), open_device("sim:gddr6-aim-chip"), open_device("null:gddr6-aim-chip")]
    cycles = []
    for device, functional in zip(devices, (True, False, True), strict=True):
        with Session(Residency(device).acquire(smollm2_artifact, functional)) as session:
            wants = [Want.NOTHING] * (len(tokens) - 2) + [Want.NEXT, Want.LOGITS]
            cycles.append([session.step(token, want).cycles for token, want in zip(tokens, wants, strict=True)])
    assert cycles[0] == cycles[1] == cycles[2]
    assert min(cycles[0]) > 0
    # Logits take time, and so does sending them.
    assert cycles[0][0] < cycles[0][-2] < cycles[0][-1]


def test_the_native_device_equals_its_models_behind_the_interface_in_python(
    smollm2_artifact: Artifact, tokens: list[int]
) -> None:
    machine = smollm2_artifact.machine
    native = open_device("sim:gddr6-aim-chip")
    python = Device(DeviceSpec("python", machine), PythonSim(machine))
    steps = []
    for device in (native, python):
        with Session(Residency(device).acquire(smollm2_artifact)) as session:
            steps.append([session.step(token, Want.LOGITS) for token in tokens[:4]])
        # The device clock counts executions and nothing else, on every device.
        assert device.queue.cycles == sum(step.cycles for step in steps[-1])
    for a, b in zip(*steps, strict=True):
        assert (a.next_token, a.cycles) == (b.next_token, b.cycles)
        assert a.logits is not None
        assert b.logits is not None
        assert (a.logits.view(np.uint32) == b.logits.view(np.uint32)).all()
        assert a.next_token == int(np.argmax(a.logits))


def test_two_sessions_interleave_without_touching_each_other(smollm2_artifact: Artifact, tokens: list[int]) -> None:
    model = Residency(open_device("sim:gddr6-aim-chip")).acquire(smollm2_artifact)

    def alone() -> list[int | None]:
        with Session(model, timing=False) as session:
            return [session.step(token).next_token for token in tokens[:6]]

    with Session(model, timing=False) as a, Session(model, timing=False) as b:
        mixed = []
        for token in tokens[:6]:
            b.step(tokens[-1])
            mixed.append(a.step(token).next_token)
    assert mixed == alone()


def test_a_session_on_used_pages_starts_clean(smollm2_artifact: Artifact, tokens: list[int]) -> None:
    """Pages come back dirty; what an earlier session left there must not show."""
    model = Residency(open_device("sim:gddr6-aim-chip")).acquire(smollm2_artifact)
    results = []
    for first in (tokens[3], tokens[5], tokens[3]):
        with Session(model, timing=False) as session:
            session.step(first)
            logits = session.step(tokens[0], Want.LOGITS).logits
            assert logits is not None
            results.append(logits)
    assert (results[0] == results[2]).all()
    assert (results[0] != results[1]).any()
