"""Files are written whole or not at all, and never in place of a device or a pipe."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from wordline.cli import main
from wordline.files import write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("before", encoding="utf-8")
    write_text(target, "after")
    assert target.read_text(encoding="utf-8") == "after"
    assert list(tmp_path.iterdir()) == [target]


def test_a_pipe_stays_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write_text(pipe, "text")
    trace = tmp_path / "t.trace"
    trace.write_text("AiM MAC_ABK 1 1 0\nAiM EOC\n", encoding="utf-8")
    assert main(["timing", str(trace), "--explain", "--perfetto", str(pipe)]) == 2
    assert "not a regular file" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [pipe, trace]
