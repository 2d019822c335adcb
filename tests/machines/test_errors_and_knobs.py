"""The error type and the environment variables."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from wordline import knobs
from wordline.errors import WordlineError
from wordline.machines import load_machine


def test_error_text() -> None:
    assert str(WordlineError("a-code", "it broke")) == "it broke"
    error = WordlineError("a-code", "it broke", where="here", remedy="mend it")
    assert str(error) == "it broke\n  where: here\n  do: mend it"
    assert error.code == "a-code"


def test_errors_cross_process_borders() -> None:
    error = pickle.loads(pickle.dumps(WordlineError("a-code", "it broke", where="here", remedy="mend it")))
    assert (error.code, error.what, error.where, error.remedy) == ("a-code", "it broke", "here", "mend it")


def test_knob_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORDLINE_CACHE", "WORDLINE_THREADS", "WORDLINE_SIMD", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert knobs.cache_dir() == Path.home() / ".cache" / "wordline"
    assert knobs.threads() >= 1
    assert knobs.simd() == "auto"


def test_the_cache_is_where_the_desktop_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WORDLINE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert knobs.cache_dir() == tmp_path / "wordline"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says its specification
    assert knobs.cache_dir() == Path.home() / ".cache" / "wordline"


def test_a_home_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", "~no-such-user/cache")
    for ask in (knobs.cache_dir, lambda: load_machine("~no-such-user/machine.toml")):
        with pytest.raises(WordlineError, match="home folder in '~no-such-user/") as caught:
            ask()
        assert caught.value.code == "no-home"


def test_knobs_are_read_when_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path))
    monkeypatch.setenv("WORDLINE_THREADS", "3")
    monkeypatch.setenv("WORDLINE_SIMD", "portable")
    assert (knobs.cache_dir(), knobs.threads(), knobs.simd()) == (tmp_path, 3, "portable")


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("WORDLINE_THREADS", "0", knobs.threads),
        ("WORDLINE_THREADS", "two", knobs.threads),
        ("WORDLINE_SIMD", "sse", knobs.simd),
    ],
)
def test_bad_knobs(monkeypatch: pytest.MonkeyPatch, name: str, value: str, read: Callable[[], object]) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(WordlineError, match=f"{name} is '{value}'") as caught:
        read()
    assert caught.value.code == "bad-knob"
