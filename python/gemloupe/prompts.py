"""What a prompt may be: a text, texts, ids, or a mapping as a tokenizer makes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from . import _core
from .errors import BadPrompt

PromptLike: TypeAlias = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | torch.Tensor | Mapping[str, Any]


def prompt_of(
    core: _core.Model, prompt: PromptLike, attention_mask: Any = None, position_ids: Any = None
) -> _core.Prompt:
    """Ids, mask and positions, as they are given: what they hold is checked where the run begins. Raises BadPrompt."""
    if isinstance(prompt, _core.Prompt):
        return prompt
    given = [name for name, v in (("attention_mask", attention_mask), ("position_ids", position_ids)) if v is not None]
    if isinstance(prompt, Mapping):
        unknown = set(prompt) - {"input_ids", "attention_mask", "position_ids", "token_type_ids"}
        if unknown or "input_ids" not in prompt:
            raise BadPrompt(
                "a mapping must have input_ids, and may have attention_mask and position_ids; "
                + (f"it also has {sorted(map(str, unknown))}." if unknown else "input_ids is missing.")
            )
        if twice := [name for name in given if prompt.get(name) is not None]:
            raise BadPrompt(f"{' and '.join(twice)} is given twice: in the mapping, and as a keyword.")
        mask, positions = prompt.get("attention_mask"), prompt.get("position_ids")
        return prompt_of(
            core,
            prompt["input_ids"],
            attention_mask if mask is None else mask,
            position_ids if positions is None else positions,
        )
    if isinstance(prompt, str):
        return _core.Prompt(core.prompt(prompt).ids, _as_tensor(attention_mask), _as_tensor(position_ids))
    if not isinstance(prompt, torch.Tensor):
        rows = _rows_of(core, prompt)
        if rows is not None:
            if given:
                raise BadPrompt(
                    f"{' and '.join(given)}: prompts of unlike lengths are padded, and have a mask of their own."
                )
            return _core.prompt_of(rows, core.pad_token)
        prompt = _as_tensor(prompt)
    if prompt.ndim == 1:
        prompt = prompt[None]
    return _core.Prompt(prompt, _as_tensor(attention_mask), _as_tensor(position_ids))


def _rows_of(core: _core.Model, prompt: Any) -> list[list[int]] | None:
    """The ids of several prompts that are to be padded; None for what is one array of ids."""
    if isinstance(prompt, (bytes, set, frozenset)) or not isinstance(prompt, Iterable):
        raise BadPrompt(
            f"a prompt is a text, a list of texts, ids, or a mapping with input_ids, but it is {type(prompt).__name__}."
        )
    if hasattr(prompt, "__array__"):
        return None
    items = list(prompt)
    if not items:
        raise BadPrompt("the prompt is empty: a run needs at least one token.")
    if all(isinstance(item, str) for item in items):
        return [core.prompt(text).ids[0].tolist() for text in items]
    if any(isinstance(item, str) for item in items):
        raise BadPrompt("a list of prompts holds texts, or ids, not both.")
    rows = [item.tolist() if hasattr(item, "tolist") else item for item in items]
    if all(isinstance(row, (list, tuple)) for row in rows) and len({len(row) for row in rows}) > 1:
        return [[int(id) for id in _as_tensor(row).tolist()] for row in rows]
    return None


def _as_tensor(value: Any) -> torch.Tensor | None:
    if value is None or isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BadPrompt(f"ids, masks and positions are arrays of integers: {error}") from None
