"""Text in and out where the locale is not UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.artifacts import tiny_contents
from wordline.artifact import write_artifact

LATIN = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}


def run(arguments: list[bytes], environment: dict[str, str], text: bytes = b"") -> tuple[int, bytes, bytes]:
    command = [sys.executable.encode(), b"-m", b"wordline.cli", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, input=text, capture_output=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The tokenizer knows the two bytes of an e with acute accent: tokens 16 and 17. Token 15 ends a text."""
    return os.fsencode(write_artifact(tmp_path_factory.mktemp("artifact") / "tiny.wl", tiny_contents()))


@pytest.mark.parametrize("environment", [{}, ASCII], ids=["utf-8", "ascii"])
def test_a_prompt_is_utf8_whatever_the_locale(artifact: bytes, environment: dict[str, str]) -> None:
    options = [b"generate", artifact, b"--max-tokens", b"1", b"--no-timing", b"--json"]
    code, out, err = run([*options, b"--prompt", "\u00e9".encode()], environment)
    assert code == 0, err
    assert json.loads(out)["prompt_tokens"] == [16, 17]
    code, out, _ = run(options, {**environment, "PYTHONIOENCODING": ":surrogateescape"}, "\u00e9".encode())
    assert (code, json.loads(out)["prompt_tokens"]) == (0, [16, 17])


@pytest.mark.parametrize("environment", [{}, ASCII], ids=["utf-8", "ascii"])
def test_a_prompt_that_is_not_text(artifact: bytes, environment: dict[str, str]) -> None:
    for arguments, text in (([b"--prompt", b"a\xff"], b""), ([], b"a\xff")):
        code, out, err = run([b"generate", artifact, *arguments], environment, text)
        assert (code, out) == (2, b"")
        assert err.startswith(b"error[bad-prompt]: the prompt is not UTF-8 text\n")


@pytest.mark.parametrize("environment", [{}, LATIN, ASCII], ids=["utf-8", "latin-1", "ascii"])
def test_output_names_what_its_encoding_lacks(tmp_path: Path, environment: dict[str, str]) -> None:
    for name in (b"caf\xc3\xa9 \xe2\x82\xac.wl", b"not text \xff.wl"):
        path = os.path.join(os.fsencode(tmp_path), name)
        write_artifact(os.fsdecode(path), tiny_contents())
        code, out, err = run([b"inspect", path, b"--json"], environment)
        assert code == 0, err
        assert os.fsencode(json.loads(out)["path"]) == path or environment is ASCII
        for command in ([b"inspect", path], [b"inspect", path, b"--svg", path + b".svg"], [b"disasm", path]):
            code, out, err = run(command, environment)
            assert (code, err) == (0, b""), err
