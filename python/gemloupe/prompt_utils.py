"""Prompts with target words, and how likely a model finds each target as what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .activations import batch_starts, check_remote, compute_next_token_probs
from .errors import BadOption, BadTokenizer, BadValue
from .modules import Module
from .progress import progress

if TYPE_CHECKING:
    from .model import StandardizedTransformer

GetProbs: TypeAlias = "Callable[..., torch.Tensor]"

CARRIER = "🍐"  # no piece of any vocabulary begins with it and goes on


class TokenizationError(BadTokenizer):
    """A tokenizer joins what cannot be told apart then: the beginning of a word and what stands before it."""


# -------------------------------------------------------------------------------------------------------------- tokens


def get_first_tokens(
    words: str | Sequence[str],
    llm_or_tokenizer: Any,
    use_hacky_implementation: bool = False,
) -> list[int]:
    """The tokens that each word may begin with, with a space before it and without: ids, each once, in the order of the words.

    A token that is nothing but white space is left out unless the word itself is: many words would share it.

    Args:
        words: a word or several.
        llm_or_tokenizer: a model or its tokenizer; one of transformers' will do.
        use_hacky_implementation: find the tokens behind a rare character. It is done without being asked for where the tokenizer
            puts a space before every text.

    Raises:
        BadOption: an empty word, or none.
        TokenizationError: the tokenizer joins that character with what follows.
    """
    tokenizer = llm_or_tokenizer.tokenizer if isinstance(llm_or_tokenizer, Module) else llm_or_tokenizer
    listed = [words] if isinstance(words, str) else list(words)
    if not listed or "" in listed:
        raise BadOption("there are no words, or an empty one: no token begins those.")
    behind_carrier = use_hacky_implementation or _adds_a_space(tokenizer)
    found: dict[int, None] = {}
    for word in listed:
        for text in (word, " " + word):
            first = (_first_behind_carrier if behind_carrier else _first)(tokenizer, text)
            if text == word or not tokenizer.decode([first]).isspace():
                found[first] = None
    return list(found)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _adds_a_space(tokenizer: Any) -> bool:
    """Whether a text and the same with a space before it are the same tokens."""
    return _ids(tokenizer, "a") == _ids(tokenizer, " a")


def _first(tokenizer: Any, text: str) -> int:
    return _ids(tokenizer, text)[0]


def _first_behind_carrier(tokenizer: Any, text: str) -> int:
    carrier, both = _ids(tokenizer, CARRIER), _ids(tokenizer, CARRIER + text)
    if both[: len(carrier)] != carrier or len(both) == len(carrier):
        raise TokenizationError(
            f"the tokenizer joins {CARRIER!r} and {text!r}, so that the text's first token is not to be had."
        )
    return both[len(carrier)]


# ------------------------------------------------------------------------------------------------------------- prompts


@dataclass
class Prompt:
    """A text, and the targets whose probability of coming next is followed.

    Attributes:
        prompt: the text.
        target_tokens: for each target the ids that count as it.
        target_strings: the words those are of, if they are of words.
    """

    prompt: str
    target_tokens: dict[str, list[int]]
    target_strings: dict[str, str | list[str]] | None = None

    @classmethod
    def from_strings(
        cls, prompt: str, target_strings: Mapping[str, str | list[str]] | list[str] | str, tokenizer: Any
    ) -> Prompt:
        """With the first tokens of words as targets; a word or a list of words is one target, called "target".

        Args:
            tokenizer: a model or a tokenizer, as in ``get_first_tokens``, which says what is raised.
        """
        named = dict(target_strings) if isinstance(target_strings, Mapping) else {"target": target_strings}
        tokens = {target: get_first_tokens(words, tokenizer) for target, words in named.items()}
        return cls(prompt, tokens, named)

    def has_no_collisions(self, ignore_targets: str | Iterable[str] | None = None) -> bool:
        """Whether no token counts as two targets, those of `ignore_targets` left out."""
        ignored = {ignore_targets} if isinstance(ignore_targets, str) else set(ignore_targets or ())
        tokens = [
            token for target, ids in self.target_tokens.items() if target not in ignored for token in dict.fromkeys(ids)
        ]
        return len(tokens) == len(set(tokens))

    def get_target_probs(self, probs: torch.Tensor, layer: int | None = None) -> dict[str, torch.Tensor]:
        """Each target's probability: that of its tokens together.

        Args:
            probs: [prompts, layers, vocab_size], or [prompts, vocab_size], which is taken as one layer.
            layer: this layer only.

        Returns:
            For each target [prompts, layers], or [prompts] with `layer`; on the CPU.

        Raises:
            BadValue: probs of another shape.
        """
        if probs.ndim == 2:
            probs = probs[:, None]
        if probs.ndim != 3:
            raise BadValue(f"probs have the shape {list(probs.shape)}; expected [prompts, layers, vocab_size].")
        found = {}
        for target, ids in self.target_tokens.items():
            summed = probs[:, :, list(dict.fromkeys(ids))].sum(dim=2).cpu()
            found[target] = summed if layer is None else summed[:, layer]
        return found

    @torch.no_grad()
    def run(self, nn_model: StandardizedTransformer, get_probs: GetProbs | None = None) -> dict[str, torch.Tensor]:
        """Each target's probability [1, layers] after this prompt.

        Args:
            get_probs: (model, text) to probabilities, such as ``logit_lens``; None is the model's next-token distribution.
        """
        return self.get_target_probs((get_probs or next_token_probs_unsqueeze)(nn_model, self.prompt))


def next_token_probs_unsqueeze(
    nn_model: StandardizedTransformer, prompt: str | Sequence[str], remote: bool = False, **_kwargs: Any
) -> torch.Tensor:
    """``compute_next_token_probs`` as one layer: [prompts, 1, vocab_size], float32, on the CPU."""
    return compute_next_token_probs(nn_model, prompt, remote=remote)[:, None]


@torch.no_grad()
def run_prompts(
    nn_model: StandardizedTransformer,
    prompts: Sequence[Prompt],
    batch_size: int = 32,
    get_probs_func: GetProbs | None = None,
    func_kwargs: Mapping[str, Any] | None = None,
    remote: bool = False,
    tqdm: Callable[..., Any] | None = progress,
) -> dict[str, torch.Tensor]:
    """Each target's probability after each prompt.

    Args:
        prompts: with the same targets each; none give an empty dict.
        batch_size: how many prompts a run has at most.
        get_probs_func: (model, texts, **func_kwargs) to probabilities [prompts, layers, vocab_size], such as ``logit_lens``; None is
            the model's next-token distribution, as one layer.
        remote: False.
        tqdm: what shows progress, called with an iterable and ``desc=``; None shows none.

    Returns:
        For each target [prompts, layers], on the CPU.

    Raises:
        BadOption: the targets are not the same, batch_size below 1; remote.
    """
    check_remote(remote)
    if not prompts:
        return {}
    targets = list(prompts[0].target_tokens)
    for prompt in prompts:
        if set(prompt.target_tokens) != set(targets):
            raise BadOption(
                f"the prompts must have the same targets, but one has {sorted(targets)} and one {sorted(prompt.target_tokens)}."
            )
    starts: Any = batch_starts(len(prompts), batch_size)
    if tqdm is not None:
        starts = tqdm(starts, desc="Running prompts")
    found: dict[str, list[torch.Tensor]] = {target: [] for target in targets}
    for start in starts:
        batch = prompts[start : start + batch_size]
        texts = [prompt.prompt for prompt in batch]
        probs = (get_probs_func or next_token_probs_unsqueeze)(nn_model, texts, **(func_kwargs or {}))
        for row, prompt in enumerate(batch):
            for target, summed in prompt.get_target_probs(probs[row : row + 1]).items():
                found[target].append(summed)
    return {target: torch.cat(rows) for target, rows in found.items()}
