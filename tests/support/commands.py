"""Running ``wordline`` commands in tests."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from wordline.cli import main

COMPILE_ONLY = ("torch", "transformers", "gguf", "safetensors", "wordline.compiler", "wordline.frontend")


@dataclass(frozen=True)
class Result:
    """What a command printed and returned; ``cpu_seconds`` of its process, 0 in this process."""

    code: int
    out: str
    err: str
    cpu_seconds: float = 0.0


def run_here(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Result:
    """Run a command in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Result(code, captured.out, captured.err)


def run_apart(
    arguments: Sequence[str | Path], environment: Mapping[str, str], without: Sequence[str] = (), text: str = ""
) -> Result:
    """Run a command in a process of its own, in which the modules ``without`` cannot be imported."""
    script = "import sys\nfor name in " + repr(tuple(without)) + ":\n    sys.modules[name] = None\n"
    script += "from wordline.cli import main\nsys.exit(main())"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, env=dict(environment), input=text, capture_output=True, encoding="utf-8", check=False, timeout=300
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Result(done.returncode, done.stdout, done.stderr, cpu)
