"""``wordline trace export``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.artifacts import tiny_contents
from wordline.artifact import write_artifact
from wordline.cli import main


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "tiny.wl", tiny_contents())


def test_export(capsys: pytest.CaptureFixture[str], tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny.trace"
    assert (
        main(["trace", "export", str(tiny), "--entry", "decode", "--args", "position=3,token=0x5", "-o", str(out)]) == 0
    )
    assert capsys.readouterr().out == f"{out}: 5 lines\n"
    assert "token=5, position=3, flags=1" in out.read_text().splitlines()[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.trace", "tiny.wl"]
    assert main(["timing", str(out), "--machine", "gddr6-aim-chip"]) == 0
    # Two reads of one open row; EOC waits until the second one's data are back: 38 + 52, and 2 to complete.
    assert capsys.readouterr().out.startswith(f"{out}: 92 cycles, 46.0 ns of device time\n")


def test_errors(capsys: pytest.CaptureFixture[str], tiny: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "t.trace")
    assert main(["trace", "export", str(tiny), "--entry", "prefill", "-o", out]) == 2
    assert "the artifact has no entry 'prefill'" in capsys.readouterr().err
    assert main(["trace", "export", str(tiny), "--args", "position=1000", "-o", out]) == 2
    assert "error[bad-argument]: position is 1000" in capsys.readouterr().err
    assert main(["trace", "export", str(tiny), "-o", str(tmp_path)]) == 2
    assert "the output is a folder" in capsys.readouterr().err
    assert main(["trace", "export", str(tiny), "-o", str(tmp_path / "no" / "t.trace")]) == 2
    assert "No such file" in capsys.readouterr().err
    for bad in ("position", "position=x", "=", "position=1,"):
        with pytest.raises(SystemExit) as stopped:
            main(["trace", "export", str(tiny), "--args", bad, "-o", out])
        assert stopped.value.code == 2
    assert not Path(out).exists()
