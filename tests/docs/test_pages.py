"""Every command, transcript and program of README.md and docs/ does what the page says.

How a page is written and followed: tests/support/documentation.py.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.documentation import (
    ROOT,
    RUN,
    Desk,
    blocks,
    comparable,
    follow,
    makes_artifact,
    pages,
    refreshed,
    unrun,
)
from wordline.artifact import Artifact
from wordline.cli.app import build_parser

TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages()}


def to_run(*, slow: bool) -> list[str]:
    """Pages with something to run; with ``slow``, those with a slow block."""
    return [
        name
        for name, text in TEXTS.items()
        if any(block.language in RUN and block.slow >= slow for block in blocks(text))
    ]


def check(name: str, folder: Path, cache: Path, artifact: Artifact, *, slow: bool) -> None:
    text = TEXTS[name]
    desk = Desk(folder, cache, None if makes_artifact(text, slow=slow) else artifact.path)
    for _, step, printed in follow(text, desk, slow=slow):
        if step.shown is not None:
            assert comparable(printed) == comparable(step.shown), (
                f"{name}:{step.line}: run .venv/bin/python scripts/refresh_docs.py {name}\n" + "\n".join(printed)
            )


@pytest.mark.parametrize("name", to_run(slow=False))
def test_commands_do_what_the_page_says(
    name: str, tmp_path: Path, wordline_cache: Path, smollm2_artifact: Artifact
) -> None:
    check(name, tmp_path, wordline_cache, smollm2_artifact, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", to_run(slow=True))
def test_slow_commands_do_what_the_page_says(
    name: str, tmp_path: Path, wordline_cache: Path, smollm2_artifact: Artifact
) -> None:
    check(name, tmp_path, wordline_cache, smollm2_artifact, slow=True)


@pytest.mark.parametrize("name", TEXTS)
def test_no_command_is_left_out(name: str) -> None:
    assert unrun(TEXTS[name]) == []


@pytest.mark.parametrize("name", TEXTS)
def test_synopses_name_options_that_exist(name: str) -> None:
    subcommands = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    for block in blocks(TEXTS[name]):
        for line in block.content if block.language == "usage" else ():
            program, subcommand, rest = line.split(maxsplit=2)
            assert program == "wordline"
            options = set(subcommands[subcommand]._option_string_actions)  # type: ignore[index,call-overload]
            assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest)) <= options, f"{name}: {line}"


def test_make_run_is_the_command_of_the_transcript() -> None:
    """``make`` is not run for real here. ``make test`` is what runs this; ``make run`` is the first transcript."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "run"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.splitlines()[-1]
    first = next(block for block in blocks(TEXTS["README.md"]) if block.language == "console").steps()[0]
    assert recipe == f".venv/bin/{first.text}"


PAGE = """Some text.

```console
$ echo old
new
host time, measured: 1 s

$ echo one \\
two
one two
```
"""


def test_a_changed_transcript_is_found_and_rewritten(tmp_path: Path) -> None:
    desk = Desk(tmp_path, tmp_path, None)
    printed = [(step.shown, lines) for _, step, lines in follow(PAGE, desk, slow=False)]
    assert printed == [(["new", "host time, measured: 1 s", ""], ["old"]), (["one two"], ["one two"])]
    rewritten = refreshed(PAGE, desk, slow=True)
    assert rewritten == PAGE.replace("new\nhost time, measured: 1 s\n", "old\n")
    assert refreshed(rewritten, desk, slow=True) == rewritten


def test_only_wall_clock_figures_may_differ() -> None:
    line = "host time, measured: prompt {} s"
    assert comparable([line.format(1)]) == comparable([line.format(2)])
    assert comparable(["device time, simulated: 1 ms"]) != comparable(["device time, simulated: 2 ms"])


def test_a_command_that_fails_is_found(tmp_path: Path) -> None:
    desk = Desk(tmp_path, tmp_path, None)
    with pytest.raises(AssertionError, match="ended with status 2, not 0"):
        list(follow("```sh\nwordline no-such-command\n```\n", desk, slow=False))
    with pytest.raises(AssertionError, match="ended with status 0, not 2"):
        list(follow("```console\n$ true\nerror[bad]: no\n```\n", desk, slow=False))


@pytest.mark.parametrize(
    "page",
    [
        "text\n\n    wordline limits\n",
        "```text\nwordline limits\n```\n",
        "```text\n$ ls\n```\n",
        "```\nnothing\n```\n",
        "```zsh\nls\n```\n",
    ],
)
def test_a_command_that_nothing_runs_is_found(page: str) -> None:
    assert len(unrun(page)) == 1
