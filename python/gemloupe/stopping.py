"""Texts that end a generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import _core
from .errors import BadOption

if TYPE_CHECKING:
    from .model import StandardizedTransformer


class StopTexts:
    """Whether every row's new text holds one of some texts."""

    def __init__(self, model: StandardizedTransformer, prompt: _core.Prompt, stop: str | Sequence[str]) -> None:
        self._tokenizer = model.tokenizer
        self._texts = [stop] if isinstance(stop, str) or not isinstance(stop, Sequence) else list(stop)
        if not all(isinstance(text, str) and text for text in self._texts):
            raise BadOption(f"stop must be a text or a list of texts, none of them empty, but it is {stop!r}.")
        rows = prompt.ids.shape[0] if prompt.ids.dim() == 2 else 1
        self._made: list[list[int]] = [[] for _ in range(rows)]
        self._done = [False] * rows

    def reached(self, tokens: list[int]) -> bool:
        for row, token in enumerate(tokens):
            self._made[row].append(token)
            if not self._done[row]:
                text = self._tokenizer.decode(self._made[row])
                self._done[row] = any(stop in text for stop in self._texts)
        return all(self._done)
