"""``model.tokenizer``: text to ids and back, with the calls that people know from transformers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from . import _core
from .errors import BadOption, BadTokenizer, BadValue, UnknownName


class Encoded(dict):
    """What calling the tokenizer gives: ``input_ids``, ``attention_mask``, …, by key or by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this encoding has {', '.join(self)}, not '{name}'") from None

    def to(self, device: Any) -> Encoded:
        return Encoded({k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in self.items()})


class Tokenizer:
    """The checkpoint's own tokenizer. ``<bos>`` is put before a text once: a text that begins with it keeps that one."""

    def __init__(self, core: _core.Tokenizer, chat_template: str | None) -> None:
        self._core = core
        self.chat_template = chat_template
        special = core.special
        self.bos_token_id: int | None = special["bos"]
        self.eos_token_id: int | None = special["eos"]
        self.pad_token_id: int | None = special["pad"]
        self.unk_token_id: int | None = special["unk"]
        self.padding_side = "left"

    # -------------------------------------------------------------------------------------------------- encoding

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        return_tensors: str | None = None,
        padding: bool | str | None = None,
        padding_side: str | None = None,
        truncation: bool = False,
        max_length: int | None = None,
        add_special_tokens: bool = True,
        return_attention_mask: bool = True,
        return_offsets_mapping: bool = False,
    ) -> Encoded:
        """Ids and mask of one text or of several.

        Args:
            return_tensors: ``"pt"`` for tensors [batch, seq]; several texts of unlike lengths are then padded.
            padding: True or ``"longest"`` pads to the longest, ``"max_length"`` to ``max_length``.
            padding_side: ``"left"`` (a decoder's) or ``"right"``; None is this tokenizer's ``padding_side``.
            return_offsets_mapping: also (begin, end) of each token in the text's characters.

        Raises:
            BadOption: an option's value is not one of those.
        """
        if return_tensors not in (None, "pt"):
            raise BadOption(f"return_tensors '{return_tensors}' is none of None and 'pt'.")
        single = isinstance(text, str)
        rows = [self._core.encode(t, add_special_tokens) for t in ([text] if single else text)]
        if truncation and max_length is not None:
            rows = [(ids[:max_length], offsets[:max_length]) for ids, offsets in rows]
        if padding is None:
            padding = return_tensors == "pt" and len({len(ids) for ids, _ in rows}) > 1
        length = max_length if padding == "max_length" and max_length else max((len(ids) for ids, _ in rows), default=0)
        side = padding_side or self.padding_side
        if side not in ("left", "right"):
            raise BadOption(f"padding_side '{side}' is none of 'left' and 'right'.")

        def pad(row: list, filler: Any) -> list:
            missing = [filler] * (length - len(row)) if padding else []
            return missing + row if side == "left" else row + missing

        out = Encoded(input_ids=[pad(ids, self.pad_token_id or 0) for ids, _ in rows])
        if return_attention_mask:
            out["attention_mask"] = [pad([1] * len(ids), 0) for ids, _ in rows]
        if return_offsets_mapping:
            out["offset_mapping"] = [pad(offsets, (0, 0)) for _, offsets in rows]
        if return_tensors == "pt":
            return Encoded({key: torch.tensor(value, dtype=torch.long) for key, value in out.items()})
        return Encoded({key: value[0] for key, value in out.items()}) if single else out

    def encode(self, text: str, *, add_special_tokens: bool = True, return_tensors: str | None = None) -> Any:
        """The ids of a text."""
        encoded = self(text, add_special_tokens=add_special_tokens, return_tensors=return_tensors)
        return encoded["input_ids"]

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[str]:
        """The tokens of a text, as the vocabulary spells them."""
        return self.convert_ids_to_tokens(self._core.encode(text, add_special_tokens)[0])

    # -------------------------------------------------------------------------------------------------- decoding

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """The text of ids: an int, a list, or a tensor [seq]."""
        if hasattr(ids, "tolist"):
            ids = ids.tolist()
        ids = [ids] if isinstance(ids, int) else list(ids)
        if any(isinstance(row, (list, tuple)) for row in ids):
            raise BadValue(
                "decode takes the ids of one text, and these are several rows: batch_decode gives a text for each."
            )
        return self._core.decode(ids, skip_special_tokens)

    def batch_decode(self, sequences: Iterable[Any], skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    # ------------------------------------------------------------------------------------------------ vocabulary

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """The vocabulary's spelling of an id or of each id. Raises UnknownName for an id that no token has."""
        if isinstance(ids, torch.Tensor):
            ids = ids.tolist()
        if isinstance(ids, int):
            if (token := self._core.id_to_token(ids)) is None:
                raise UnknownName(f"no token has the id {ids}; ids go from 0 to {self._core.end_id - 1}.")
            return token
        return [self.convert_ids_to_tokens(i) for i in ids if not (skip_special_tokens and self._core.is_special(i))]

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """The id of a token or of each token; the unknown token's for what is not in the vocabulary."""
        if isinstance(tokens, str):
            found = self._core.token_to_id(tokens)
            return self.unk_token_id if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        return self.decode(self.convert_tokens_to_ids(list(tokens)))

    def get_vocab(self) -> dict[str, int]:
        named = ((self._core.id_to_token(i), i) for i in range(self._core.end_id))
        return {token: i for token, i in named if token is not None}

    def get_added_vocab(self) -> dict[str, int]:
        return {content: i for i, content, _ in self._core.added_tokens}

    @property
    def vocab_size(self) -> int:
        return self._core.size

    def __len__(self) -> int:
        return self._core.size

    @property
    def all_special_ids(self) -> list[int]:
        return [i for i, _, special in self._core.added_tokens if special]

    @property
    def all_special_tokens(self) -> list[str]:
        return [content for _, content, special in self._core.added_tokens if special]

    def _token(self, token_id: int | None) -> str | None:
        return None if token_id is None else self._core.id_to_token(token_id)

    @property
    def bos_token(self) -> str | None:
        return self._token(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        return self._token(self.eos_token_id)

    @property
    def pad_token(self) -> str | None:
        return self._token(self.pad_token_id)

    @property
    def unk_token(self) -> str | None:
        return self._token(self.unk_token_id)

    # ------------------------------------------------------------------------------------------------------ chat

    def apply_chat_template(
        self,
        conversation: Sequence[dict[str, Any]],
        *,
        chat_template: str | None = None,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        return_tensors: str | None = None,
        return_dict: bool = False,
        tools: Sequence[dict[str, Any]] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
        **variables: Any,
    ) -> Any:
        """A chat as the checkpoint's own template writes it: ids, tensors, or with ``tokenize=False`` the text.

        Raises:
            BadTokenizer: the checkpoint has no template, or one that is broken.
            BadPrompt: messages that the template refuses.
        """
        template = chat_template or self.chat_template
        if template is None:
            raise BadTokenizer(
                "this checkpoint has no chat template; pass chat_template=, or use its instruction-tuned release."
            )
        options = self._core.special_token_texts() | {"add_generation_prompt": add_generation_prompt} | variables
        if tools is not None:
            options["tools"] = list(tools)
        if documents is not None:
            options["documents"] = list(documents)
        text = _core.render_chat(template, list(conversation), options)
        if not tokenize:
            return text
        # The template writes <bos> itself; nothing is added to what it wrote.
        encoded = self(text, add_special_tokens=False, return_tensors=return_tensors)
        return encoded if return_dict else encoded["input_ids"]

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} tokens, bos={self.bos_token!r}, eos={self.eos_token!r})"
