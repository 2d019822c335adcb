"""Trace one decode step of a transformers causal language model with `torch.export`, without allocating its weights."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import Dim, ExportedProgram
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from wordline.errors import WordlineError
from wordline.frontend.attention import IMPLEMENTATION
from wordline.frontend.foreign import summary

_TRACE_BATCH = 2
"""Batch of the example inputs: torch.export keeps a dimension symbolic only if its example is larger than 1."""

_MAX_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class ExportedStep:
    """A traced decode step.

    Attributes:
        program: torch.export's program; inputs token and position (int32, [batch]); outputs logits and next token.
        tables: values of the buffers that the configuration determines (rotary frequencies), by buffer name.
        aliases: parameter name to the name of the tensor it shares; identity for most.
        parameters: shape of each parameter under its shared name.
    """

    program: ExportedProgram
    tables: dict[str, NDArray[np.generic]]
    aliases: dict[str, str]
    parameters: dict[str, tuple[int, ...]]


class _DecodeStep(torch.nn.Module):  # type: ignore[misc]  # torch is seen untyped
    """Token and position of each lane to logits and the greedy next token."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.model(
            input_ids=token[:, None], position_ids=position[:, None], use_cache=False, return_dict=False
        )
        logits = outputs[0][:, 0]
        return logits, torch.argmax(logits, dim=-1).to(torch.int32)


def export_decode_step(config: PretrainedConfig) -> ExportedStep:
    """Trace the model that a configuration describes.

    Args:
        config: configuration of a causal language model; not changed.

    Raises:
        WordlineError: "unsupported-architecture": transformers has no causal language model for it;
            "unreadable-config"; "export-failed": the model's code cannot be traced.
    """
    model = _model_on_meta(config)
    step = _DecodeStep(model)
    token = torch.zeros(_TRACE_BATCH, dtype=torch.int32, device="meta")
    batch = Dim("batch", max=_MAX_BATCH)
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(
                step, (token, torch.zeros_like(token)), dynamic_shapes=({0: batch}, {0: batch}), strict=False
            )
    except Exception as error:  # torch.export raises many unrelated types
        raise WordlineError(
            "export-failed",
            f"the decode step of {type(model).__name__} cannot be traced: {summary(error)}",
            where=_raised_at(error),
            remedy="use a model whose decode step has no data-dependent Python branches",
        ) from error
    names = dict(model.named_parameters(remove_duplicate=False))
    shared: dict[int, str] = {}
    aliases = {name: shared.setdefault(id(parameter), name) for name, parameter in names.items()}
    parameters = {name: tuple(names[name].shape) for name in shared.values()}
    return ExportedStep(program, _configured_tables(model), aliases, parameters)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from printing whole traces when tracing fails: the error raised says what matters."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)


def _model_on_meta(config: PretrainedConfig) -> PreTrainedModel:
    config = copy.deepcopy(config)
    # Private to transformers, but the only switch for a registered attention function.
    config._attn_implementation = IMPLEMENTATION
    config.use_cache = False
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    except Exception as error:  # model code raises many unrelated types
        if str(error).startswith("Unrecognized configuration class"):
            raise WordlineError(
                "unsupported-architecture",
                f"'{config.model_type}' is not a causal language model",
                remedy="use a decoder-only model such as Llama, Mistral or Qwen3",
            ) from error
        raise WordlineError(
            "unreadable-config",
            f"the model '{config.model_type}' cannot be built from its configuration: {summary(error)}",
            where=_raised_at(error),
            remedy="compare config.json with the one the model's publisher provides",
        ) from error
    return model.eval()


def _configured_tables(model: PreTrainedModel) -> dict[str, NDArray[np.generic]]:
    """Values of buffers that no checkpoint holds, computed by transformers' own initialisation on the CPU.

    Buffers that the initialisation leaves alone are not in the result.
    """
    tables: dict[str, NDArray[np.generic]] = {}
    for prefix, module in model.named_modules():
        transient = {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        if not transient:
            continue
        # A shallow copy: only the buffers get memory, parameters and submodules stay without.
        real: Any = copy.copy(module)
        real.__dict__["_buffers"] = {
            name: torch.full_like(buffer, _unset(buffer), device="cpu") for name, buffer in transient.items()
        }
        with torch.no_grad(), _quiet():
            model._init_weights(real)
        for name, buffer in real._buffers.items():
            data = buffer.numpy()
            if not np.array_equal(data, np.full_like(data, _unset(buffer)), equal_nan=buffer.is_floating_point()):
                full = f"{prefix}.{name}" if prefix else name
                if not np.isfinite(data).all():
                    raise WordlineError(
                        "unreadable-config",
                        f"the table '{full}' that follows from the configuration holds what is no finite number",
                        remedy="compare the rotary embedding's parameters with those the model's publisher provides",
                    )
                tables[full] = data
    return tables


def _unset(buffer: torch.Tensor) -> float | int:
    """What no initialisation fills a buffer with."""
    if buffer.is_floating_point():
        return float("nan")
    return 1 if buffer.dtype == torch.bool else int(torch.iinfo(buffer.dtype).min)


def _raised_at(error: BaseException) -> str | None:
    """The innermost frame inside a model's own code."""
    place = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/models/" in code.co_filename:
            place = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
