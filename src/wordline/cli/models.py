"""Models that are compiled without their weights: by file, folder or published name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from wordline.cli.options import positive
from wordline.knobs import expanded

if TYPE_CHECKING:
    from wordline.frontend.load import ImportedModel

DEFAULT_CONTEXT = 4096
MODEL_HELP = (
    "config.json, model folder or GGUF file (weights are not read), or a published model's name: Llama-2-7B, ..."
)


def add_layers_option(parser: argparse.ArgumentParser) -> None:
    """``--layers``."""
    parser.add_argument(
        "--layers", type=positive, metavar="N", help="what if: compile the first N layers only; nothing is scaled"
    )


def import_model(name: str, layers: int | None, progress: Callable[[str], None]) -> ImportedModel:
    """The model without weights. A path that exists goes before a name.

    Raises:
        WordlineError: "unknown-model-shape", "bad-layers", or what importing raises.
    """
    progress("loading the compiler")
    from wordline.compiler.published import published_config
    from wordline.frontend.load import load_config, load_model

    path = expanded(name)
    if path.exists() or path.suffix in (".json", ".gguf") or "/" in name:
        progress("importing the model")
        return load_model(path, bind=False, layers=layers)
    known, fields = published_config(name)
    progress("importing the model")
    return load_config(known, fields, layers)


def contexts(text: str) -> list[int]:
    """Argument type: whole numbers, separated by commas."""
    return [positive(part.strip()) for part in text.split(",")]


def chosen_contexts(given: list[list[int]] | None, model: ImportedModel) -> list[int]:
    """All contexts of the command line in ascending order; by default 4096, or the model's maximum if that is less."""
    limit = int(model.metadata["max_context"])
    return sorted({context for part in given or [[min(DEFAULT_CONTEXT, limit)]] for context in part})
