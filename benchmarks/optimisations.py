"""``python -m benchmarks.optimisations``: what each optimisation of the compiler gains, on its own and as the last one.

Without an option the committed figures are printed. ``--measure`` compiles and times every program again, in some
minutes, and writes the figures and the tables of docs/optimisations.md, which are made of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.programs import compiled_step, decode_program
from benchmarks.suite import CARD, CHIP, EIGHT, MAX_CONTEXT, machine_of
from wordline.cli.output import print_tables, table
from wordline.cli.progress import progress
from wordline.compiler.optimisations import ALL, NAMES, NONE, Optimisations
from wordline.files import write_text
from wordline.sim.shapes import known_shapes
from wordline.sim.timing import TimingModel

FIGURES = Path(__file__).with_name("optimisations.json")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "optimisations.md"


@dataclass(frozen=True)
class Workload:
    """A decode step at ``context`` of the first ``blocks`` layers of a model, with a vocabulary of 512.

    Whole models do not always fit the instruction memory without optimisations.
    """

    machine: str
    model: str
    context: int
    blocks: int

    def cycles(self, optimisations: Optimisations) -> int:
        """What the program takes that is compiled with these optimisations."""
        machine = machine_of(self.machine)
        shape = replace(known_shapes()[self.model], layers=self.blocks, vocab=512)
        benchmark = decode_program(machine, shape, MAX_CONTEXT[self.model], self.context, optimisations)
        compiled_step.cache_clear()  # dozens of programs, each of which is timed once
        model = TimingModel(machine)
        return model.run(model.load(benchmark.generated.program), 0, benchmark.memory).cycles


WORKLOADS = {
    "six blocks of SmolLM2-135M, 2 channels, 1,024 tokens": Workload(CHIP, "SmolLM2-135M", 1024, blocks=6),
    "two blocks of Llama-2-7B, 8 channels, 4,096 tokens": Workload(EIGHT, "Llama-2-7B", 4096, blocks=2),
    "two blocks of Llama-3-8B, 32 channels, 4,096 tokens": Workload(CARD, "Llama-3-8B", 4096, blocks=2),
}


@dataclass(frozen=True)
class Figures:
    """Cycles of one workload: with everything, with nothing, with only one optimisation, with all but one."""

    everything: int
    nothing: int
    only: Mapping[str, int]
    without: Mapping[str, int]

    def alone(self, name: str) -> float:
        """Percent of the time that the optimisation saves where there is no other."""
        return 100 * (1 - self.only[name] / self.nothing)

    def last_in(self, name: str) -> float:
        """Percent of the time that it saves where all others are."""
        return 100 * (1 - self.everything / self.without[name])


def measure(workload: Workload, told: Callable[[str], None]) -> Figures:
    """Compile and time one workload in every way."""

    def cycles(what: str, optimisations: Optimisations) -> int:
        told(what)
        return workload.cycles(optimisations)

    return Figures(
        cycles("everything", ALL),
        cycles("nothing", NONE),
        {name: cycles(f"only {name}", ALL.only(name)) for name in NAMES},
        {name: cycles(f"without {name}", ALL.without(name)) for name in NAMES},
    )


def committed() -> dict[str, Figures]:
    """The committed figures by workload."""
    return {name: Figures(**figures) for name, figures in json.loads(FIGURES.read_text(encoding="utf-8")).items()}


_PLACE = re.compile(r"<!-- gains of (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def with_figures(page: str, figures: Mapping[str, Figures]) -> str:
    """The page with its tables made of ``figures``: one a section, and one of all together."""

    def made(found: re.Match[str]) -> str:
        name = found[1]
        lines = _together(figures) if name == "all" else _of_one(name, figures)
        return "\n".join([f"<!-- gains of {name} -->", *lines, "<!-- end -->"])

    return _PLACE.sub(made, page)


def _together(figures: Mapping[str, Figures]) -> Iterator[str]:
    yield "| workload | with none, cycles | with all, cycles | times faster |"
    yield "|---|---|---|---|"
    for workload, found in figures.items():
        yield f"| {workload} | {found.nothing:,} | {found.everything:,} | {found.nothing / found.everything:.2f} |"


def _of_one(name: str, figures: Mapping[str, Figures]) -> Iterator[str]:
    yield "| workload | alone | last in |"
    yield "|---|---|---|"
    for workload, found in figures.items():
        yield f"| {workload} | {_percent(found.alone(name))} | {_percent(found.last_in(name))} |"


def _percent(value: float) -> str:
    return f"{value + 0.0:.2f} %".replace("-0.00", "0.00")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure if asked to, and print a table for every workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimisations", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="time everything again; write the figures and the page")
    args = parser.parse_args(arguments)
    if args.measure:
        with progress() as report:
            found = {
                name: measure(workload, lambda what, name=name: report(f"{name}: {what}"))  # type: ignore[misc]
                for name, workload in WORKLOADS.items()
            }
        documents = {name: vars(figures) for name, figures in found.items()}
        write_text(FIGURES, json.dumps(documents, indent=2) + "\n")
        write_text(PAGE, with_figures(PAGE.read_text(encoding="utf-8"), found))
    parts: list[object] = ["percent of the device time, simulated, that an optimisation saves", ""]
    for workload, figures in committed().items():
        rows = [[name, _percent(figures.alone(name)), _percent(figures.last_in(name))] for name in NAMES]
        title = f"{workload}: {figures.nothing:,} cycles with none, {figures.everything:,} with all"
        parts += [table(title, ["optimisation", "alone", "last in"], rows), ""]
    print_tables(*parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
