"""Prompts that a hidden state is patched into: the text, and which of its tokens gives way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .errors import BadOption

WORDS = ("king", "1135", "hello")


@dataclass
class TargetPrompt:
    """A text, and the token in it that is patched: 0 is <bos>, -1 the last."""

    prompt: str
    index_to_patch: int


@dataclass
class TargetPromptBatch:
    """Several texts, and which token is patched in each: `index_to_patch` is int64 [prompts]. Raises BadOption if they are not as many."""

    prompts: list[str]
    index_to_patch: torch.Tensor

    def __post_init__(self) -> None:
        if self.index_to_patch.shape != (len(self.prompts),):
            raise BadOption(
                f"index_to_patch has the shape {list(self.index_to_patch.shape)} for {len(self.prompts)} prompts; one index each."
            )

    @classmethod
    def from_target_prompts(cls, prompts_: Sequence[TargetPrompt | str]) -> TargetPromptBatch:
        """Of target prompts, or texts that are patched at their last token."""
        targets = [_target(prompt) for prompt in prompts_]
        indices = torch.tensor([target.index_to_patch for target in targets], dtype=torch.long)
        return cls([target.prompt for target in targets], indices)

    @classmethod
    def from_target_prompt(cls, prompt: TargetPrompt | str, batch_size: int) -> TargetPromptBatch:
        """The same target `batch_size` times."""
        return cls.from_target_prompts([prompt] * batch_size)

    @classmethod
    def from_prompts(
        cls, prompts: str | Sequence[str], index_to_patch: int | Sequence[int] | torch.Tensor
    ) -> TargetPromptBatch:
        """Of texts, with one index for all or one for each. Raises BadOption for indices that are no integers or not as many."""
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        if isinstance(index_to_patch, int):
            index_to_patch = [index_to_patch] * len(texts)
        if not isinstance(index_to_patch, (Sequence, torch.Tensor)) or isinstance(index_to_patch, str):
            raise BadOption(
                f"index_to_patch is an integer, a list or a tensor of integers, not {type(index_to_patch).__name__}."
            )
        indices = torch.as_tensor(index_to_patch)
        if indices.is_floating_point() and indices.numel():
            raise BadOption(f"index_to_patch holds {indices.dtype}; it must hold integers.")
        return cls(texts, indices.long())

    @staticmethod
    def auto(
        target_prompt: str | TargetPrompt | Sequence[TargetPrompt | str] | TargetPromptBatch, batch_size: int
    ) -> TargetPromptBatch:
        """Any way to name targets, as a batch: one text or target is repeated `batch_size` times, several stay as many as they are.

        A text is patched at its last token.

        Raises:
            BadOption: something else.
        """
        if isinstance(target_prompt, TargetPromptBatch):
            return target_prompt
        if isinstance(target_prompt, (str, TargetPrompt)):
            return TargetPromptBatch.from_target_prompt(target_prompt, batch_size)
        if isinstance(target_prompt, Sequence):
            return TargetPromptBatch.from_target_prompts(target_prompt)
        raise BadOption(
            "a target is a text, a TargetPrompt, a list of them or a TargetPromptBatch, not "
            f"{type(target_prompt).__name__}."
        )

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, idx: int) -> TargetPrompt:
        return TargetPrompt(self.prompts[idx], int(self.index_to_patch[idx]))

    def __iter__(self) -> Iterator[TargetPrompt]:
        return (self[idx] for idx in range(len(self)))


def _target(prompt: TargetPrompt | str) -> TargetPrompt:
    if isinstance(prompt, str):
        return TargetPrompt(prompt, -1)
    if isinstance(prompt, TargetPrompt):
        return prompt
    raise BadOption(f"a target is a text or a TargetPrompt, not {type(prompt).__name__}.")


def repeat_prompt(
    words: Sequence[str] | None = None,
    rel: str = " ",
    sep: str = "\n",
    placeholder: str = "?",
    index_to_patch: int = -1,
) -> TargetPrompt:
    """The patchscopes paper's identity prompt: each word said twice, then a placeholder whose state is patched.

    Args:
        words: the words; None is "king", "1135", "hello".
        rel: what stands between the two.
        sep: what stands between the words.
        placeholder: what is said last.
        index_to_patch: which token is patched; -1 is the placeholder's last.
    """
    doubled = [word + rel + word for word in (WORDS if words is None else words)]
    return TargetPrompt(sep.join([*doubled, placeholder]), index_to_patch)


# --------------------------------------------------------------------------------------------------------------- chat

SYSTEM = "You are a careful assistant."
TASK = "Each of my messages is a text that breaks off. Say the one word that comes next, and nothing else."
ASIDE = "Say the one word that comes next in this text, and nothing else:"


def it_repeat_prompt(
    tokenizer: Any,
    words: Sequence[str] | None = None,
    rel: str = " ",
    sep: str = "\n",
    placeholder: str = "?",
    complete_prompt: bool = True,
    add_user_instr: bool = True,
    use_system_prompt: bool = True,
) -> TargetPrompt:
    """``repeat_prompt`` in the chat template of an instruction-tuned model.

    Args:
        tokenizer: the model's, or one of transformers' fast ones.
        words, rel, sep, placeholder: as in ``repeat_prompt``.
        complete_prompt: the model's turn repeats the text and breaks off at the placeholder; else it is empty.
        add_user_instr: the instruction is a turn of its own, which the model has agreed to.
        use_system_prompt: there is a system message; a template that knows none gets it in the user's first message.

    Returns:
        The text, and the index of the placeholder's last token, counted from the end.

    Raises:
        BadTokenizer: no chat template.
        BadPrompt: the template refuses the messages.
    """
    text = repeat_prompt(words, rel, sep, placeholder).prompt
    chat = _chat(text, add_user_instr, use_system_prompt)
    try:
        rendered = _render(tokenizer, chat, text, complete_prompt)
    except Exception:
        if chat[0]["role"] != "system":
            raise
        rendered = _render(tokenizer, _without_system(chat), text, complete_prompt)
    return TargetPrompt(rendered, _last_token_of(tokenizer, rendered, text.strip()))


def _chat(text: str, add_user_instr: bool, use_system_prompt: bool) -> list[dict[str, str]]:
    """The messages up to the model's turn."""

    def says(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    if add_user_instr:
        turns = [says("user", TASK), says("assistant", "Understood."), says("user", text)]
        return [says("system", SYSTEM), *turns] if use_system_prompt else turns
    if use_system_prompt:
        return [says("system", TASK), says("user", text)]
    return [says("user", f"{ASIDE} {text}")]


def _without_system(chat: list[dict[str, str]]) -> list[dict[str, str]]:
    system, first, *rest = chat
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def _render(tokenizer: Any, chat: list[dict[str, str]], text: str, complete: bool) -> str:
    if not complete:
        return tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    turn = {"role": "assistant", "content": text}
    rendered = tokenizer.apply_chat_template([*chat, turn], tokenize=False)
    said = text.strip()  # as templates trim it
    return rendered[: rendered.rindex(said) + len(said)]


def _last_token_of(tokenizer: Any, rendered: str, text: str) -> int:
    """The token with the end of `text`, where it stands last in `rendered`, counted from the end."""
    place = rendered.rindex(text) + len(text) - 1
    offsets = tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return max(i for i, (begin, end) in enumerate(offsets) if begin <= place < end) - len(offsets)
