"""The one exception type for everything a user can cause or cure."""

from __future__ import annotations


class WordlineError(Exception):
    """An error that names its code, what is wrong, where, and what to do about it.

    Args:
        code: stable kebab-case name ("unknown-machine"); tests and scripts match on it.
        what: one sentence that says what is wrong, with the offending value.
        where: file, field, operation or address the error belongs to.
        remedy: what the user can do, as an imperative sentence.
    """

    def __init__(self, code: str, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(code, what)

    def __str__(self) -> str:
        text = self.what
        if self.where is not None:
            text += f"\n  where: {self.where}"
        if self.remedy is not None:
            text += f"\n  do: {self.remedy}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments are lost by the default reduction; errors cross process borders in sweeps.
        return _rebuild, (type(self), self.code, self.what, self.where, self.remedy)


def _rebuild(kind: type[WordlineError], code: str, what: str, where: str | None, remedy: str | None) -> WordlineError:
    return kind(code, what, where=where, remedy=remedy)
