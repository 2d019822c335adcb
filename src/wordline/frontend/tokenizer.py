"""What the runtime needs of a model's tokenizer, so that it depends on the `tokenizers` and `jinja2` packages only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from transformers import AutoTokenizer, PretrainedConfig

from wordline.errors import WordlineError
from wordline.frontend.foreign import summary

_SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "do_sample")


class TokenizerFiles(TypedDict):
    """A tokenizer as the runtime takes it.

    Attributes:
        tokenizer_json: the file that `tokenizers.Tokenizer.from_str` reads.
        chat_template: jinja2 template over `messages`, `add_generation_prompt`, `bos_token`, `eos_token`; None without
            one.
        bos_token: text of the begin-of-sequence token, None without one.
        eos_token: text of the (first) end-of-sequence token, None without one.
        eos_token_ids: tokens that end a generation.
        generation: sampling defaults the model states, such as temperature and top_p; often empty.
    """

    tokenizer_json: str
    chat_template: str | None
    bos_token: str | None
    eos_token: str | None
    eos_token_ids: list[int]
    generation: dict[str, float | int | bool]


def tokenizer_of(
    source: Path, config: PretrainedConfig, gguf_metadata: Mapping[str, Any] | None = None
) -> TokenizerFiles | None:
    """The tokenizer of a GGUF file or a model directory; None if a directory has none.

    Raises:
        WordlineError: "unreadable-tokenizer".
    """
    directory = source.parent if gguf_metadata is not None else source
    if gguf_metadata is None and not any((source / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        return None
    options = {"gguf_file": source.name} if gguf_metadata is not None else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, **options)
        tokenizer_json = tokenizer.backend_tokenizer.to_str()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # transformers raises many unrelated types; panics of tokenizers are no Exception
        raise WordlineError(
            "unreadable-tokenizer",
            f"the tokenizer cannot be read: {summary(error)}",
            where=str(source),
            remedy="use a model with a tokenizer.json, or a GGUF file whose tokenizer transformers can convert",
        ) from error
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    defaults = _generation_config(directory) if gguf_metadata is None else {}
    ends = _end_tokens(defaults.get("eos_token_id", config.eos_token_id), tokenizer.eos_token_id, gguf_metadata or {})
    ends = [token for token in ends if 0 <= token < config.vocab_size]  # the model never says any other
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        chat_template=template,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        eos_token_ids=ends,
        generation={name: defaults[name] for name in _SAMPLING if defaults.get(name) is not None},
    )


def _end_tokens(configured: int | list[int] | None, own: int | None, metadata: Mapping[str, Any]) -> list[int]:
    ends = list(configured) if isinstance(configured, list) else [configured]
    # Chat models end a turn with another token than a document.
    ends += [own, metadata.get("tokenizer.ggml.eot_token_id"), metadata.get("tokenizer.ggml.eom_token_id")]
    return sorted({int(token) for token in ends if token is not None})


def _generation_config(directory: Path) -> dict[str, Any]:
    path = directory / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_bytes())
        if not isinstance(loaded, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise WordlineError(
            "unreadable-config",
            f"generation_config.json cannot be read: {summary(error)}",
            where=str(path),
            remedy="get the file again, or remove it",
        ) from error
    return loaded
