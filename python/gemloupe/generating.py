"""The options of a generation."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _core
from .errors import BadOption
from .stopping import StopTexts

if TYPE_CHECKING:
    from .model import StandardizedTransformer
    from .prompts import PromptLike

DRAWING = ("temperature", "top_k", "top_p", "min_p", "seed")
WHOLE = ("max_new_tokens", "top_k", "seed")
#: What transformers calls otherwise, or has and we have not.
ELSEWHERE = {
    "max_length": "give max_new_tokens, which does not count the prompt",
    "stop_strings": "give stop",
    "pad_token_id": "done rows are filled with the checkpoint's",
    "num_beams": "there is no beam search",
    "num_return_sequences": "repeat the prompt: a list of prompts is one batch",
    "output_scores": "read model.logits in `with model.generate(...)`",
    "output_hidden_states": "read layer_output in `with model.generate(...)`",
    "output_attentions": "read attention_probabilities in `with model.generate(...)`",
}


def generate_options(
    model: StandardizedTransformer,
    prompt: PromptLike | None = None,
    *,
    input_ids: Any = None,
    attention_mask: Any = None,
    position_ids: Any = None,
    do_sample: bool | None = None,
    stop: str | Sequence[str] | None = None,
    streamer: Callable[[list[int]], bool | None] | None = None,
    eos_token_id: int | Sequence[int] | torch.Tensor | None = None,
    **numbers: Any,
) -> tuple[_core.Prompt, _core.GenerateOptions]:
    """The keywords of `StandardizedTransformer.generate` as the engine takes them: the checkpoint's own, and over them what is given.

    Raises:
        BadPrompt, BadOption.
    """
    if (prompt is None) == (input_ids is None):
        raise BadOption("generate takes a prompt, or input_ids=, one of them.")
    prompt = model._prompt(input_ids if prompt is None else prompt, attention_mask, position_ids)
    if do_sample is not None and not isinstance(do_sample, bool):
        raise BadOption(f"do_sample must be True, False or None, but it is {do_sample!r}.")
    if streamer is not None and not callable(streamer):
        raise BadOption(f"streamer is called with each step's tokens, but it is {streamer!r}.")
    options = _core.GenerateOptions(model._core)
    given = {name: _number(name, value) for name, value in numbers.items() if value is not None}
    drawn = [name for name in DRAWING if name in given]
    if do_sample is False and drawn:
        raise BadOption(
            f"do_sample=False takes the most probable token, and {' and '.join(drawn)} say how to draw one."
        )
    if do_sample is not None or drawn:
        options.do_sample = bool(drawn) if do_sample is None else do_sample
    for name, value in given.items():
        setattr(options, name, value)
    if eos_token_id is not None:
        options.end_tokens = _ids(eos_token_id)
    if stop is not None or streamer is not None:
        stops = StopTexts(model, prompt, stop) if stop is not None else None
        options.on_step = lambda tokens: (
            (streamer is None or streamer(tokens) is not False) and not (stops is not None and stops.reached(tokens))
        )
    return prompt, options


def _ids(given: Any) -> set[int]:
    listed = given.reshape(-1).tolist() if isinstance(given, torch.Tensor) else given
    listed = [listed] if isinstance(listed, int) else listed
    if not isinstance(listed, (list, tuple, set, range)) or not all(
        isinstance(id, int) and not isinstance(id, bool) for id in listed
    ):
        raise BadOption(f"eos_token_id must be an id or a list of ids, but it is {given!r}.")
    return set(listed)


def _number(name: str, value: Any) -> float | int:
    known = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    if name not in known:
        hint = ELSEWHERE.get(name, f"it has {', '.join(known)}, do_sample, stop, streamer and eos_token_id")
        raise BadOption(f"generate has no option '{name}': {hint}.")
    whole = name in WHOLE
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise BadOption(f"{name} must be {'a whole number' if whole else 'a number'}, but it is {value!r}.")
    if whole and name != "seed" and not 0 <= value < 2**62:
        raise BadOption(f"{name} must be 0 or more, but it is {value}.")
    if name == "seed" and not 0 <= value < 2**64:
        raise BadOption(f"seed must be from 0 to 2**64 - 1, but it is {value}.")
    return value


def enters_a_with(frame: Any) -> bool:
    """Whether what the caller's current instruction returns is entered by a ``with``: only its code can tell."""
    later = (
        i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti and i.opname not in ("CACHE", "COPY")
    )
    following = next(later, None)
    return following is not None and (
        following.opname == "BEFORE_WITH" or (following.opname == "LOAD_SPECIAL" and "__exit__" in following.argrepr)
    )
