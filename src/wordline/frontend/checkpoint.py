"""Read the weights of a Hugging Face model directory: one or several safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from wordline.errors import WordlineError
from wordline.frontend.foreign import summary

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def weights_of(
    directory: Path, parameters: Mapping[str, tuple[int, ...]], aliases: Mapping[str, str]
) -> dict[str, NDArray[np.generic]]:
    """The parameters of a model, float32, by shared name.

    Args:
        directory: holds model.safetensors, or model.safetensors.index.json and the files it names.
        parameters: names and shapes the model needs.
        aliases: every parameter name to its shared name; a file may hold a tied tensor under any of them.

    Raises:
        WordlineError: "missing-weights", "damaged-safetensors", "wrong-shape".
    """
    weights: dict[str, NDArray[np.generic]] = {}
    with ExitStack() as stack:
        for path in _files(directory):
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
                for name in file.keys():  # noqa: SIM118  # not a mapping
                    shared = aliases.get(name)
                    if shared is None or shared in weights:
                        continue
                    tensor: torch.Tensor = file.get_tensor(name)
                    if tuple(tensor.shape) != parameters[shared]:
                        raise WordlineError(
                            "wrong-shape",
                            f"tensor '{name}' has shape {list(tensor.shape)}, "
                            f"the model needs {list(parameters[shared])}",
                            where=str(path),
                            remedy="check that config.json belongs to these weights",
                        )
                    weights[shared] = tensor.to(torch.float32).numpy()
            except SafetensorError as error:
                raise WordlineError(
                    "damaged-safetensors",
                    f"the safetensors file is damaged or cut short: {error}",
                    where=str(path),
                    remedy="get the file again; its size should match the one its publisher states",
                ) from error
    missing = [name for name in parameters if name not in weights]
    if missing:
        raise WordlineError(
            "missing-weights",
            f"the safetensors files lack {len(missing)} of the model's {len(parameters)} tensors, "
            f"the first is '{missing[0]}'",
            where=str(directory),
            remedy="check that config.json belongs to these weights",
        )
    return weights


def _files(directory: Path) -> list[Path]:
    index = directory / _INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
            outside = [name for name in names if Path(name).name != name]
            if outside:
                raise ValueError(f"{outside[0]!r:.60} is no name of a file beside it")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise WordlineError(
                "damaged-safetensors",
                f"the index of the safetensors files cannot be read: {summary(error)}",
                where=str(index),
                remedy="get the file again",
            ) from error
    else:
        names = [_SINGLE]
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise WordlineError(
            "missing-weights",
            f"the model directory has no {absent[0]}",
            where=str(directory),
            remedy="add the weights in safetensors format, or give config.json itself to work without weights",
        )
    return [directory / name for name in names]
