"""The error handler: every failure is a message and an exit code, never a traceback."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

import wordline
from tests.support.artifacts import tiny_contents
from wordline.artifact import write_artifact
from wordline.cli import COMMANDS, main
from wordline.cli import app as app_module
from wordline.errors import WordlineError


class Failing:
    """A subcommand that raises what it is given."""

    NAME = "fail"
    HELP = "raise"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")

    def run(self, args: argparse.Namespace) -> int:
        raise self.error


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run a command that raises; returns exit code, standard output and standard error."""

    def run(error: BaseException, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(app_module, "COMMANDS", (Failing(error),))
        code = main(["fail", *options])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return code, output.out, output.err

    return run


def test_a_user_error_says_what_where_and_what_to_do(fail) -> None:  # type: ignore[no-untyped-def]
    error = WordlineError("too-big", "the model does not fit", where="model.gguf", remedy="use gddr6-aim-card")
    code, out, err = fail(error)
    assert (code, out) == (2, "")
    assert err == "error[too-big]: the model does not fit\n  where: model.gguf\n  do: use gddr6-aim-card\n"


def test_with_json_the_error_is_a_document_too(fail) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = fail(WordlineError("too-big", "the model does not fit", remedy="use gddr6-aim-card"), "--json")
    assert code == 2
    assert json.loads(out) == {
        "error": {"code": "too-big", "what": "the model does not fit", "where": None, "remedy": "use gddr6-aim-card"}
    }


def test_a_full_disk_is_a_user_error(fail) -> None:  # type: ignore[no-untyped-def]
    code, _, err = fail(OSError(28, "No space left on device", "/cache/x.wl"))
    assert code == 2
    assert err.startswith(
        "error[system]: the operating system refused: No space left on device\n  where: /cache/x.wl\n"
    )


def test_too_little_memory(fail) -> None:  # type: ignore[no-untyped-def]
    code, _, err = fail(MemoryError())
    assert code == 2
    assert err.startswith("error[out-of-memory]")


def test_an_interrupt_is_not_an_error(fail) -> None:  # type: ignore[no-untyped-def]
    assert fail(KeyboardInterrupt()) == (130, "", "interrupted\n")


def test_a_defect_names_its_place_and_hides_the_traceback(fail, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("WORDLINE_TRACEBACK", raising=False)
    code, _, err = fail(ZeroDivisionError("by zero"))
    assert code == 70
    assert "internal error: ZeroDivisionError: by zero\n  where: " in err
    assert f"{__file__}:" in err
    assert "WORDLINE_TRACEBACK=1" in err


def test_the_traceback_of_a_defect_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORDLINE_TRACEBACK", "1")
    monkeypatch.setattr(app_module, "COMMANDS", (Failing(ZeroDivisionError("by zero")),))
    assert main(["fail"]) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_every_subcommand_has_its_own_name_and_a_help_line(capsys: pytest.CaptureFixture[str]) -> None:
    names = [command.NAME for command in COMMANDS]
    assert len(set(names)) == len(names)
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    for name in names:
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert f"usage: wordline {name}" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["limits", "--nonsense"]])
def test_wrong_use_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert "usage: wordline" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"wordline {wordline.__version__}\n"


@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "tables"])
def test_a_reader_that_leaves_early_is_no_error(options: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "wordline.cli", "limits", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    """What is printed goes nowhere then, above all not into a file that is written."""
    artifact, picture = write_artifact(tmp_path / "t.wl", tiny_contents()), tmp_path / "t.svg"
    command = [sys.executable, "-m", "wordline.cli", "inspect", str(artifact), "--svg", str(picture)]
    done = subprocess.run(["/bin/sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert picture.read_text().startswith("<svg")
    assert picture.read_text().rstrip().endswith("</svg>")


def test_a_bad_knob_is_said_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLINE_TRACEBACK", "yes")
    assert main(["limits"]) == 2
    assert "WORDLINE_TRACEBACK is 'yes'" in capsys.readouterr().err


def test_building_the_parser_imports_nothing_slow() -> None:
    slow = ("torch", "transformers", "gguf", "tokenizers", "rich", "jinja2")
    code = (
        f"import sys, wordline.cli.app as a; a.build_parser(); sys.exit(str([m for m in {slow!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_an_error_in_json_that_nobody_can_read_is_still_one_error(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "wordline.cli", "timing", str(tmp_path / "none"), "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error[system]:")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
