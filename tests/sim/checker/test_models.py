"""What the cycle models make of programs and traces obeys the rules: no violation, in either profile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.programs import Benchmark, decode_program
from benchmarks.suite import CARD, CASES, CHIP, Attention, Case, Gemv, key, machine_of
from tests.sim.timing.test_against_ticking import VARIANTS
from tests.support.gemv_traces import gemv_trace
from tests.support.micro_traces import FOLDER, micro_schedules
from tests.support.random_traces import random_simulator, random_trace, repeating_trace
from tests.support.schedules import OURS, PUBLISHED, RECORD, corpus
from tests.support.timing_programs import random_program, stepwise_program
from wordline.machines import Machine, load_machine
from wordline.sim.checker import Report, check, check_file, fold
from wordline.sim.shapes import known_shapes
from wordline.sim.timing import TimingModel
from wordline.sim.traces import TraceModel

PROFILES = (OURS, PUBLISHED)
SMALL: tuple[Case, ...] = (
    Gemv(CHIP, 192, 576),
    Gemv(CHIP, 576, 1536),
    Gemv(CARD, 4096, 4096),
    Attention(CHIP, "SmolLM2-135M", 1024),
    Attention(CARD, "Llama-3-8B", 1024),
)
GROUPS, NORMAL, MANY = 2, 40, 700  # programs and traces of a group in the normal tier, and in the slow one


def require_none(report: Report) -> None:
    assert report.ok, f"{report.name}: {dict(report.by_rule)}, {report.violations[:2]}"


def checked(machine: Machine, benchmark: Benchmark, name: str) -> Report:
    model = TimingModel(machine)
    result = model.run(model.load(benchmark.generated.program), 0, benchmark.memory, trace=True)
    report = check(machine, fold(result.trace), name=name)
    assert report.commands == len(result.trace)
    assert report.channels == tuple(range(machine.organisation.channels))
    return report


@pytest.mark.parametrize("profile", PROFILES)
def test_small_schedules(profile: str) -> None:
    for schedule in corpus(profile):
        require_none(schedule.check())


@pytest.mark.parametrize("case", SMALL, ids=key)
def test_kernels(case: Case) -> None:
    machine = machine_of(case.machine)
    require_none(checked(machine, case.benchmark(machine), key(case)))


def test_a_decode_step_of_two_layers() -> None:
    machine = machine_of(CHIP)
    shape = replace(known_shapes()["SmolLM2-135M"], layers=2, vocab=2048)
    require_none(checked(machine, decode_program(machine, shape, 256, 200), "two layers"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=key)
def test_every_kernel_of_the_suite(case: Case) -> None:
    machine = machine_of(case.machine)
    require_none(checked(machine, case.benchmark(machine), key(case)))


def test_schedules_of_the_public_simulator() -> None:
    """What it printed itself, not what our model of it makes."""
    card = machine_of(CARD)
    reports = check_file(FOLDER / "command_schedules.txt", card, PUBLISHED)
    printed = micro_schedules()
    assert [r.name for r in reports] == [f"micro_{name}.trace" for name in printed]
    assert [r.commands for r in reports] == [len(commands) for commands in printed.values()]
    for report in reports:
        require_none(report)


def test_what_the_public_simulator_lets_pass() -> None:
    """The same schedules by our rules: data hazards, a mode switch right after a MAC or copy, and no refresh."""
    card = machine_of(CARD)
    reports = {report.name: report for report in check_file(FOLDER / "command_schedules.txt", card, OURS)}
    found = {name.removesuffix(".trace").removeprefix("micro_"): r.by_rule for name, r in reports.items() if not r.ok}
    assert set(found) == {"copy_bkgb_gbbk", "long_mac_8000col"}
    assert set(found["copy_bkgb_gbbk"]) == {"nCL + nBL"}
    assert set(found["long_mac_8000col"]) == {"refresh-due"}


@pytest.mark.parametrize("row", [(512, 2048, 4, "out"), (4096, 1024, 32, "k"), (4096, 4096, 8, "reuse4")], ids=str)
@pytest.mark.parametrize("profile", PROFILES)
def test_matrix_vector_traces(profile: str, row: tuple[int, int, int, str]) -> None:
    for refresh in (False, True):
        machine = load_machine(CARD, {"aim_simulator.refresh": refresh, "refresh.enabled": refresh})
        time = TraceModel(machine, profile).run(gemv_trace(*row).encode(), record=RECORD)
        require_none(check(machine, fold(time.schedule), profile))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("folder", ["micro_traces", "random_traces", "random_traces2"])
def test_reference_traces(folder: str, profile: str) -> None:
    model = TraceModel(machine_of(CARD), profile)
    for path in sorted((FOLDER / folder).glob("*.trace"))[::3]:
        time = model.run(path.read_bytes(), str(path), record=RECORD)
        require_none(check(model.machine, fold(time.schedule), profile, name=path.name))


def programs(seeds: Iterator[int]) -> None:
    for seed in seeds:
        machine = load_machine(CHIP, VARIANTS[seed % len(VARIANTS)])
        model = TimingModel(machine)
        program = random_program(seed) if seed % 3 else stepwise_program(seed)
        result = model.run(model.load(program), 0, [(seed * 7 + i * 3) % 5 for i in range(8)], trace=True)
        require_none(check(machine, fold(result.trace), name=f"program {seed}"))


def traces(seeds: Iterator[int], profile: str) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        settings: dict[str, int | bool] = {"timing.nREFI": 1600} if profile == OURS else {}
        for rule in ("faw_enforced", "row_commands_in_register_mode", "commands_during_refresh"):
            settings[f"rules.{rule}"] = rng.random() < 0.3
        machine = load_machine(random_simulator(rng).name, settings)
        text = random_trace(rng, ordinary=rng.choice((0, 0.3, 0.6))) if seed % 4 else repeating_trace(rng, longest=12)
        time = TraceModel(machine, profile).run(text.encode(), record=RECORD)
        require_none(check(machine, fold(time.schedule), profile, name=f"trace {seed} on {machine.name}"))


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs(group: int) -> None:
    programs(iter(range(10_000 * group, 10_000 * group + NORMAL)))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_traces(group: int, profile: str) -> None:
    traces(iter(range(10_000 * group, 10_000 * group + NORMAL)), profile)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs_many(group: int) -> None:
    programs(iter(range(10_000 * group + NORMAL, 10_000 * group + MANY)))


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_traces_many(group: int, profile: str) -> None:
    traces(iter(range(10_000 * group + NORMAL, 10_000 * group + MANY)), profile)
