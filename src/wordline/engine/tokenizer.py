"""Text to tokens and back: the artifact's ``tokenizer.json`` and chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wordline.artifact import Artifact, TokenizerInfo
from wordline.artifact.artifact import corrupt
from wordline.errors import WordlineError

REPLACEMENT = "\ufffd"
MAX_CHAT_CHARACTERS = 1 << 24
"""What a chat template may write: far more than any context holds, little enough to be held."""


class Tokenizer:
    """The tokenizer of one model."""

    def __init__(self, artifact: Artifact) -> None:
        """Raises ``WordlineError``: "no-tokenizer", or "corrupt-artifact" if the file cannot be used."""
        import tokenizers

        text = artifact.tokenizer_json().decode("utf-8", "replace")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises plain Exception, and its panics are not even that
            raise corrupt(artifact.path, f"tokenizer.json cannot be used: {error}") from error
        # Both would change what is encoded behind the caller's back.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        info = artifact.manifest.tokenizer
        assert info is not None  # checked when the artifact was opened
        self.info: TokenizerInfo = info
        self._where = str(artifact.path)

    def encode(self, text: str) -> list[int]:
        """Tokens of a plain text, with the begin token if the model wants one.

        Raises:
            WordlineError: "bad-prompt" for half a surrogate pair, which is no character; "tokenizer-failed".
        """
        return self._encode(text, special=True)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Tokens of a conversation, ending where the answer begins. Messages have a ``role`` and a ``content``.

        Raises:
            WordlineError: "no-chat-template", "chat-template" if the template refuses the conversation, "bad-prompt".
        """
        return self._encode(self.render_chat(messages), special=False)

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text that the chat template makes of a conversation."""
        if self.info.chat_template is None:
            raise WordlineError(
                "no-chat-template",
                "the model has no chat template: it was not trained to answer",
                where=self._where,
                remedy="leave out --chat, and give a text to continue",
            )
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise jinja2.TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = refuse
        text, size = [], 0
        try:
            for piece in environment.from_string(self.info.chat_template).generate(
                messages=list(messages),
                add_generation_prompt=True,
                bos_token=self._token(self.info.bos_id),
                eos_token=self._token(next(iter(self.info.eos_ids), None)),
            ):
                text.append(piece)
                size += len(piece)
                if size > MAX_CHAT_CHARACTERS:
                    refuse(f"it writes more than {MAX_CHAT_CHARACTERS:,} characters")
        except Exception as error:  # a template is a program of the model's: it can fail in any way
            reason = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
            raise WordlineError(
                "chat-template",
                f"the model's chat template refuses the conversation: {reason}",
                where=self._where,
                remedy="leave out --chat",
            ) from error
        return "".join(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones. Bytes that are not UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def stream(self) -> TextStream:
        """Text token by token."""
        return TextStream(self)

    def _encode(self, text: str, special: bool) -> list[int]:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise WordlineError(
                "bad-prompt",
                f"the prompt has half a surrogate pair, U+{ord(text[error.start]):04X}, at character {error.start}",
                remedy="decode the text as UTF-8, or leave that character out",
            ) from error
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a pattern that gives up is a panic of the library, which is no Exception
            raise WordlineError(
                "tokenizer-failed",
                f"the model's tokenizer cannot encode this text: {error}",
                where=self._where,
                remedy="try another text; if all fail, compile the model again from another source",
            ) from error

    def _token(self, token: int | None) -> str:
        return "" if token is None else str(self._tokenizer.id_to_token(token) or "")


class TextStream:
    """Turns tokens into text as they come. A token may end within a character: text is given out in whole characters.

    The text of a token depends on its predecessor (joining spaces), so each piece is the difference of two decodings
    that start at the same token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []  # tokens of the last piece given out, then those held back
        self._given = 0  # characters of the window's text that are out already

    def push(self, token: int) -> str:
        """The text that is certain with this token; empty while a character is incomplete."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) or len(text) <= self._given:
            return ""
        piece = text[self._given :]
        self._window = self._window[-1:]
        self._given = len(self._tokenizer.decode(self._window))
        return piece

    def finish(self) -> str:
        """What is left at the end of the text: incomplete characters become U+FFFD."""
        piece = self._tokenizer.decode(self._window)[self._given :]
        self._window, self._given = [], 0
        return piece


def _to_json(value: Any, indent: int | None = None) -> str:
    # jinja2's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)
