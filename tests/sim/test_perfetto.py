"""Trace-event files: well-formed, complete, and nothing overlaps within a track."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.support.gemv_traces import gemv_trace
from tests.support.random_traces import random_trace
from tests.support.timing_programs import random_program, stepwise_program
from wordline.machines import load_machine
from wordline.sim.critical_path import EVENT_KINDS, CriticalPath
from wordline.sim.perfetto import document_lines
from wordline.sim.timing import DRAM_COMMANDS, TimingModel
from wordline.sim.traces import PROFILES, TraceModel

CHIP = load_machine("gddr6-aim-chip", {"timing.nREFI": 1500, "aim_simulator.refresh": True})

Document = dict[str, Any]
Tracks = dict[tuple[str, str], list[dict[str, Any]]]


def label(lane: int, instruction: int) -> dict[str, Any]:
    return {"where_from": f"{lane}:{instruction}"}


def written(path: CriticalPath | None, channels: set[int] | None = None) -> Document:
    assert path is not None
    document: Document = json.loads("".join(document_lines(path, CHIP, label, "a run", channels)))
    return document


def tracks_of(document: Document) -> Tracks:
    """Slices by process and thread name, checked as the format has them."""
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] == "ns"
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    tracks: Tracks = {}
    for event in document["traceEvents"]:
        if event["ph"] == "M":
            assert set(event) <= {"ph", "pid", "tid", "name", "args"}
            if event["name"] == "process_name":
                assert event["pid"] not in processes
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                key = (event["pid"], event["tid"])
                assert key not in threads
                threads[key] = event["args"]["name"]
                tracks[processes[event["pid"]], event["args"]["name"]] = []
            else:
                assert isinstance(event["args"]["sort_index"], int)
            continue
        assert event["ph"] == "X"
        assert set(event) == {"ph", "pid", "tid", "name", "cat", "ts", "dur", "args"}
        assert isinstance(event["ts"], int)
        assert isinstance(event["dur"], int)
        assert event["ts"] >= 0
        assert event["dur"] > 0
        assert event["name"]
        assert event["cat"]
        tracks[processes[event["pid"]], threads[event["pid"], event["tid"]]].append(event)
    return tracks


def check(path: CriticalPath | None) -> Tracks:
    document = written(path)
    assert path is not None
    tracks = tracks_of(document)
    for slices in tracks.values():
        ordered = sorted(slices, key=lambda s: s["ts"])
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(ordered))
    waited = tracks["critical path", "waited for"]
    credit = sum(part.cycles for part in path.parts if part.cycles < 0)
    assert sum(s["dur"] for s in waited) + credit == path.cycles == document["otherData"]["cycles"]
    for number, lane in enumerate(path.lanes):
        events = path.events(number).tolist()
        if lane.kind == "channel":
            check_channel(tracks, lane.name, lane.channels[0], events)
        elif lane.kind in ("vector", "link"):
            kind = {"vector": "pass", "link": "transfer"}[lane.kind]
            name = {"vector": "vector unit"}.get(lane.kind, "link")
            wanted = [(e[0], e[1] - e[0]) for e in events if EVENT_KINDS[e[3]] == kind and e[1] > e[0]]
            assert [(s["ts"], s["dur"]) for s in tracks[name, name]] == wanted
        else:
            decoded = sum(EVENT_KINDS[e[3]] == "decode" for e in events)
            assert sum(s["dur"] for s in tracks["host", "decoding"]) == decoded
    return tracks


def check_channel(tracks: Tracks, name: str, channel: int, events: list[list[int]]) -> None:
    """Every command is on the bus; rows are open as the commands say; the buffer shows what uses it."""
    process = next(p for p, _ in tracks if p.split(" (")[0] == f"channel {channel}")
    assert process in (f"channel {channel}", f"channel {channel} (as {name})")
    assert {thread for p, thread in tracks if p == process} == {
        *("bus", "all banks", "buffer"),
        *(f"bank {bank}" for bank in range(16)),
    }
    commands = [e for e in events if EVENT_KINDS[e[3]] == "command"]
    bus = tracks[process, "bus"]
    assert [(s["ts"], s["dur"], s["name"]) for s in bus] == [
        (e[0], e[1] + 1 - e[0], DRAM_COMMANDS[e[4]]) for e in commands
    ]
    assert [s["args"].get("commands", 1) for s in bus] == [e[2] for e in commands]
    users = [e for e in commands if DRAM_COMMANDS[e[4]] in ("WRGB", "RDCP", "WRCP", "MAC16", "MAC")]
    assert [s["ts"] for s in tracks[process, "buffer"]] == [e[0] for e in users]
    rows = [s for (p, t), slices in tracks.items() if p == process and "bank" in t for s in slices if s["cat"] == "row"]
    for slice_ in bus:  # a column command finds the row that it names open
        if slice_["name"] in ("MAC16", "MAC", "RD", "WR", "RDCP", "WRCP", "EWMUL16", "AF16"):
            first, last = slice_["ts"], slice_["ts"] + slice_["dur"]
            row = f"row {slice_['args']['row']}"
            assert any(r["name"] == row and r["ts"] <= first and last <= r["ts"] + r["dur"] for r in rows)
    refreshes = [s["ts"] for s in tracks[process, "all banks"] if s["cat"] == "refresh"]
    assert refreshes == [s["ts"] for s in bus if s["name"] == "REFab"]


@pytest.mark.parametrize("profile", PROFILES)
def test_traces(profile: str) -> None:
    model = TraceModel(CHIP, profile)
    for seed in range(40):
        check(model.run(random_trace(random.Random(seed), channels=2, lines=40).encode(), explain=True).critical_path)


def test_programs() -> None:
    model = TimingModel(CHIP)
    kinds = set()
    for seed in range(40):
        for make in (random_program, stepwise_program):
            tracks = check(model.run(model.load(make(seed)), explain=True).critical_path)
            kinds |= {thread for (_, thread), slices in tracks.items() if slices}
    assert kinds >= {"bus", "all banks", "bank 0", "buffer", "vector unit", "link", "waited for"}


def test_size_and_choice_of_channels() -> None:
    card = load_machine("gddr6-aim-card")
    text = gemv_trace(1024, 4096, 32, "k").encode()
    path = TraceModel(card, "corrected").run(text, explain=True).critical_path
    document = written(path)
    commands = sum(s["args"].get("commands", 1) for s in tracks_of(document)["channel 0 (as channels 0-31)", "bus"])
    assert commands > 700
    assert len(document["traceEvents"]) < 250  # a burst is one slice, alike channels are shown once
    shown = tracks_of(written(path, {3, 4}))
    assert {p for p, _ in shown} == {
        "critical path",
        "channel 3 (as channels 0-31)",
        "channel 4 (as channels 0-31)",
    }
