"""Operations happen in order, wait for what they must, and failures reach every waiter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.artifacts import counting_program
from tests.support.devices import ScriptedDevice, scripted
from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine
from wordline.runtime import Device, ExecuteFlag, Point, Scheduler, Semaphore

BOTH = ExecuteFlag.FUNCTIONAL | ExecuteFlag.TIMING


@pytest.fixture(scope="module")
def machine() -> Machine:
    return load_machine("gddr6-aim-chip")


@pytest.fixture
def pair(machine: Machine) -> tuple[Device, ScriptedDevice]:
    return scripted(machine, lambda token, position: np.zeros(4, np.float32))


def test_a_timeline_only_moves_forward() -> None:
    timeline = Semaphore(Scheduler(), 5)
    timeline.wait(5)
    with pytest.raises(WordlineError, match="at 5 was signalled 5"):
        timeline.signal(5)
    timeline.signal(9)
    assert timeline.reached(9)
    assert not timeline.reached(10)


def test_waiting_for_what_nothing_signals_is_an_error_not_a_hang() -> None:
    with pytest.raises(WordlineError, match="from 0 to 1") as caught:
        Semaphore(Scheduler()).wait(1)
    assert caught.value.code == "timeline-deadlock"


def test_failure_is_sticky_but_what_was_reached_stays_reached() -> None:
    timeline = Semaphore(Scheduler())
    timeline.signal(3)
    timeline.fail(WordlineError("first", "first failure"))
    timeline.fail(WordlineError("second", "second failure"))
    timeline.signal(9)
    timeline.wait(3)
    with pytest.raises(WordlineError, match="first failure"):
        timeline.wait(4)


def test_rows_and_words_come_back(pair: tuple[Device, ScriptedDevice]) -> None:
    device, script = pair
    rng = np.random.default_rng(1)
    out = device.host_buffer(2 * script.row_size)
    back = device.host_buffer(2 * script.row_size)
    out.data[:] = rng.integers(0, 256, out.data.size, np.uint8)
    device.queue.write_rows(out.address, 7, 2)
    device.queue.read_rows(back.address, 7, 2).wait()
    assert (back.data == out.data).all()
    device.queue.write_words(out.address, 100, 64)
    device.queue.read_words(back.address + 1024, 100, 64).wait()
    assert (back.data[1024:1280] == out.data[:256]).all()


def test_operations_wait_for_points_and_hold_those_behind(pair: tuple[Device, ScriptedDevice]) -> None:
    device, script = pair
    gate, seen = device.semaphore(), []
    first = device.queue.zero_rows(0, 1, 1, waits=[Point(gate, 2)])
    second = device.queue.host_call(lambda: seen.append(len(script.log)))
    with pytest.raises(WordlineError, match="nothing left to do"):
        second.wait()
    assert script.log == []
    gate.signal(2)
    second.wait()
    assert first.reached
    assert seen == [1]


def test_host_calls_signal_other_devices(machine: Machine) -> None:
    scheduler = Scheduler()
    devices = []
    for _ in range(2):
        _, script = scripted(machine, lambda token, position: np.zeros(4, np.float32))
        devices.append((Device(scripted(machine, script.model)[0].spec, script, scheduler), script))
    (a, _), (b, script) = devices
    handover = a.semaphore()
    end = b.queue.zero_rows(3, 1, 1, waits=[Point(handover, 1)])
    a.queue.host_call(lambda: None, signals=[Point(handover, 1)])
    end.wait()
    assert script.log == [("zero", 3, 1, 1)]


def test_more_operations_than_the_ring_holds(pair: tuple[Device, ScriptedDevice]) -> None:
    device, script = pair
    points = [device.queue.zero_rows(i, 1, 1) for i in range(1000)]
    points[-1].wait()
    assert script.log == [("zero", i, 1, 1) for i in range(1000)]
    assert all(point.reached for point in points)


def test_a_fault_fails_its_signals_and_everything_later(pair: tuple[Device, ScriptedDevice], machine: Machine) -> None:
    device, script = pair
    program = device.load(counting_program(machine).to_bytes())
    script.fail_at = 0
    done, after = device.semaphore(), device.semaphore()
    before = device.queue.fence()
    device.queue.execute(program.slot, 0, BOTH, signals=[Point(done, 1)])
    device.queue.fence(signals=[Point(after, 1)])
    with pytest.raises(WordlineError) as caught:
        after.wait(1)
    assert caught.value.code == "device-fault"
    assert caught.value.where == "stream 1, channel 2, instruction 3"
    assert "row 99999 does not exist" in caught.value.what
    before.wait()
    for timeline in (done, device.queue.timeline):
        assert timeline.error is caught.value
    with pytest.raises(WordlineError, match="row 99999"):
        device.queue.fence().wait()


def test_a_failed_host_call_fails_what_waits_for_it_elsewhere(pair: tuple[Device, ScriptedDevice]) -> None:
    device, script = pair

    def refuse() -> None:
        raise WordlineError("no-luck", "the call failed")

    done = device.semaphore()
    device.queue.host_call(refuse, signals=[Point(done, 1)])
    end = device.queue.zero_rows(0, 1, 1, waits=[Point(done, 1)])
    with pytest.raises(WordlineError, match="the call failed"):
        end.wait()
    assert script.log == []


def test_what_is_in_flight_completes_when_a_later_operation_fails(pair: tuple[Device, ScriptedDevice]) -> None:
    device, script = pair
    broken = device.semaphore()
    broken.fail(WordlineError("broken", "broken elsewhere"))
    first = device.queue.zero_rows(0, 1, 1)
    second = device.queue.zero_rows(1, 1, 1, waits=[Point(broken, 1)])
    with pytest.raises(WordlineError, match="broken elsewhere"):
        second.wait()
    first.wait()
    assert script.log == [("zero", 0, 1, 1)]


def test_signalling_backwards_fails_the_operation(pair: tuple[Device, ScriptedDevice]) -> None:
    device, _ = pair
    other = device.semaphore()
    other.signal(5)
    with pytest.raises(WordlineError, match="at 5 was signalled 2"):
        device.queue.fence(signals=[Point(other, 2)]).wait()


def test_reset_fails_the_old_timeline_and_begins_a_new_one(pair: tuple[Device, ScriptedDevice]) -> None:
    device, script = pair
    gate = device.semaphore()
    waiting = device.queue.zero_rows(0, 1, 1, waits=[Point(gate, 1)])
    device.reset()
    with pytest.raises(WordlineError, match="the device was reset"):
        waiting.wait()
    device.queue.zero_rows(1, 1, 1).wait()
    assert script.log == [("zero", 1, 1, 1)]


@pytest.mark.parametrize(
    ("submit", "words"),
    [
        (lambda q, a: q.write_rows(a, 16383, 2), "rows 16383 to 16385 of 16384 do not exist"),
        (lambda q, a: q.write_rows(a, 0, 1), "are in no open window"),
        (lambda q, a: q.zero_rows(0, 1, 4), "names channels that do not exist"),
        (lambda q, a: q.write_words(a, 1 << 40, 1), "do not exist"),
        (lambda q, a: q.load_program(a, 64, 0), "no program image"),
        (lambda q, a: q.load_program(a, 64, 64), "slot 64"),
        (lambda q, a: q.unload_program(3), "slot 3 holds no program"),
        (lambda q, a: q.execute(5, 0, BOTH), "slot 5 holds no program"),
    ],
)
def test_wrong_descriptors_are_refused(pair: tuple[Device, ScriptedDevice], submit: object, words: str) -> None:
    device, _ = pair
    buffer = device.host_buffer(64)
    with pytest.raises(WordlineError, match="device reports") as caught:
        submit(device.queue, buffer.address).wait()  # type: ignore[operator]
    assert words in caught.value.what


def test_closed_windows_are_closed(pair: tuple[Device, ScriptedDevice]) -> None:
    device, _ = pair
    buffer = device.host_buffer(64)
    device.unmap(buffer)
    with pytest.raises(WordlineError, match="no open window"):
        device.queue.read_words(buffer.address, 0, 4).wait()


def test_read_only_windows_are_not_written(pair: tuple[Device, ScriptedDevice]) -> None:
    device, _ = pair
    buffer = device.map(np.frombuffer(bytes(64), np.uint8))
    device.queue.write_words(buffer.address, 0, 4).wait()
    with pytest.raises(WordlineError, match="no open window"):
        device.queue.read_words(buffer.address, 0, 4).wait()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["device", "host"]), st.integers(0, 4)), min_size=1, max_size=30), st.data())
def test_any_schedule_of_waits_runs_in_submission_order(ops: list[tuple[str, int]], data: st.DataObject) -> None:
    """Operations that wait for an outside timeline run in the order of submission, whenever it moves."""
    machine = load_machine("gddr6-aim-chip")
    device, script = scripted(machine, lambda token, position: np.zeros(4, np.float32))
    outside = device.semaphore()
    for i, (kind, value) in enumerate(ops):
        waits = [Point(outside, value)] if value else []
        if kind == "device":
            device.queue.zero_rows(i, 1, 1, waits=waits)
        else:
            device.queue.host_call(lambda i=i: script.log.append(("zero", i, 1, 1)), waits=waits)  # type: ignore[misc]
    for value in range(1, 5):
        for _ in range(data.draw(st.integers(0, 3))):
            device.scheduler.advance()
        blocked = next((i for i, (_, wanted) in enumerate(ops) if wanted >= value), len(ops))
        assert len(script.log) <= blocked
        outside.signal(value)
    device.queue.fence().wait()
    assert script.log == [("zero", i, 1, 1) for i in range(len(ops))]
