"""The façade: a checkpoint that is loaded, its modules and values, and what can be done with it."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import _core
from .accessors import Accessors
from .config import Config
from .errors import BadOption, BadPrompt, OutsideTrace
from .modules import Module, build_tree
from .saving import open_tracers
from .tokenizer import Tokenizer
from .tracing import Tracer

_log = logging.getLogger("gemloupe")

PromptLike = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | torch.Tensor | Mapping[str, Any]


class StandardizedTransformer(Accessors, Module):
    """A Gemma checkpoint with one name, one layout and one meaning for each value in its forward pass.

    Args:
        path_or_id: a checkpoint folder, a ``.gguf`` file, or a hub id that is in the local cache.
        dtype: ``"float32"``, ``torch.bfloat16``, …; None is what config.json says, else the
            file's own, float32 where it is quantised.
        device: where weights and runs live, as libtorch names it.
        attn_implementation: ``"eager"`` is the reference's operations, bit for bit; None or ``"sdpa"`` is the fused default.
        revision: branch, tag or commit of a hub id.
        dispatch: accepted for compatibility: weights are mapped, and read when a run needs them.
        task: ``"text-generation"`` or None.
        dequantize: quantised weights are widened at load; None and True say so.
        final_logit_softcapping: ``"default"``, ``"config"``, None for no cap, or a number.
        threads: how many threads libtorch computes with.
        ignore_config_keys: keys of config.json that have no meaning for a forward pass although gemloupe does not know them.

    Raises:
        NotFound, BadCheckpoint, BadConfig, BadOption: each names the file or value, what was expected, and what to do.
    """

    def __init__(
        self,
        path_or_id: str | os.PathLike,
        *,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device = "cpu",
        attn_implementation: str | None = None,
        revision: str | None = None,
        dispatch: bool = True,
        task: str | None = None,
        dequantize: bool | None = None,
        final_logit_softcapping: str | float | None = "default",
        threads: int | None = None,
        ignore_config_keys: Sequence[str] = (),
    ) -> None:
        if task not in (None, "text-generation"):
            raise BadOption(f"task '{task}' is none of None and 'text-generation'.")
        if dequantize is False:
            raise BadOption("dequantize=False: quantised weights are widened at load; leave it None.")
        options = _core.LoadOptions()
        options.dtype = None if dtype is None else str(dtype)
        options.device = str(device)
        options.attn_implementation = attn_implementation or ""
        options.revision = revision
        options.final_logit_softcapping = "none" if final_logit_softcapping is None else str(final_logit_softcapping)
        options.threads = threads
        options.ignore_config_keys = list(ignore_config_keys)
        own = self.__dict__
        own["_core"] = core = _core.Model.load(os.fspath(path_or_id), options)
        for warning in core.plan.warnings:
            warnings.warn(warning, stacklevel=2)
        own["_infos"] = core.plan.modules
        own["_row_table"] = core.plan.rows
        own["_row_index"] = core.plan.row_index
        own["_probabilities_row"] = own["_row_index"]["next_token_probs"]
        own["_input_size_row"] = own["_row_index"]["input_size"]
        lazy = {own["_row_index"]["logits"], own["_row_index"]["lm_head_output"]}
        own["_special_rows"] = lazy | {own["_probabilities_row"], own["_input_size_row"]}
        own["config"] = Config(core.plan.config)
        own.update(core.plan.sizes)
        own["num_layers"] = len(core.plan.layer_sizes)
        own["_tokenizer"] = None
        super().__init__(self, own["_infos"][0], "")
        build_tree(self)
        _log.info("loaded %s: %s, %d blocks", core.path, core.plan.class_name, self.num_layers)

    # --------------------------------------------------------------------------------------------------------- runs

    def trace(self, prompt: PromptLike, *, attention_mask: Any = None, position_ids: Any = None) -> Tracer:
        """One run that the ``with`` body pulls.

        Args:
            prompt: a text, a list of texts (one left-padded batch), ids, or a mapping with ``input_ids`` and optionally
                ``attention_mask`` and ``position_ids``.

        Raises:
            BadPrompt: empty, ids outside the vocabulary, or a mask or positions that do not fit.
        """
        return Tracer(self, _core.Trace(self._core, self._prompt(prompt, attention_mask, position_ids)))

    def __call__(self, prompt: PromptLike, **kwargs: Any) -> torch.Tensor:
        """The logits [batch, seq, vocab_size] of a run without edits."""
        core = _core.Trace(self._core, self._prompt(prompt, **kwargs))
        logits = core.read(self._row_index["logits"])
        core.finish()
        return logits

    def generate(
        self,
        prompt: PromptLike,
        *,
        max_new_tokens: int = 20,
        streamer: Callable[[list[int]], bool | None] | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Greedy continuation: the ids [batch, prompt + new], ended by the checkpoint's end-of-sequence tokens."""
        ends = [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
        return self._core.generate(self._prompt(prompt), max_new_tokens, ends, streamer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer, loaded at its first use."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(_core.Tokenizer.of(self._core), _core.chat_template(self._core))
        return self._tokenizer

    def project_on_vocab(self, hidden: torch.Tensor) -> torch.Tensor:
        """The model's own readout of any hidden state [..., hidden_size]: final norm, lm_head, and the cap if it has one."""
        return self._core.project_on_vocab(hidden)

    # -------------------------------------------------------------------------------------------------------- names

    def value_names(self) -> list[str]:
        """Every standard value of this checkpoint that is a tensor, in the order of the forward pass."""
        return [row.name for row in self._row_table if row.is_value and row.axes]

    def module_paths(self) -> list[str]:
        """Every native module's path, as the reference spells it."""
        return [info["path"] for info in self._infos if info["path"]]

    def support(self) -> _core.Document:
        """What can be read and written in this checkpoint: values by host, sizes, config, notes. Prints as text, shows as HTML."""
        return _core.support(self._core)

    def __repr__(self) -> str:
        """The native modules under their standard names, and every standard value with its layout."""
        return _core.printout(self._core)

    # ------------------------------------------------------------------------------------------------------- inside

    def _row(self, name: str) -> int:
        return self._core.plan.find_row(name)

    @staticmethod
    def _standard_path(native: str) -> str:
        return native.removeprefix("model.")

    def _tracer(self, name: str) -> Tracer:
        for tracer in reversed(open_tracers()):  # those of other models may be open, too
            if tracer._model is self:
                return tracer
        raise OutsideTrace(
            f"'{name}' exists while a run goes on: read and write it inside `with model.trace(prompt):`, and .save() what is "
            "needed afterwards."
        )

    def _prompt(self, prompt: PromptLike, attention_mask: Any = None, position_ids: Any = None) -> _core.Prompt:
        if isinstance(prompt, _core.Prompt):
            return prompt
        if isinstance(prompt, Mapping):
            unknown = set(prompt) - {"input_ids", "attention_mask", "position_ids", "token_type_ids"}
            if unknown or "input_ids" not in prompt:
                raise BadPrompt(
                    "a mapping must have input_ids, and may have attention_mask and position_ids; "
                    + (f"it also has {sorted(unknown)}." if unknown else "input_ids is missing.")
                )
            return self._prompt(prompt["input_ids"], prompt.get("attention_mask"), prompt.get("position_ids"))
        if isinstance(prompt, str):
            return self._core.prompt(prompt)
        if not isinstance(prompt, torch.Tensor):
            prompt = list(prompt)
            if not prompt:
                raise BadPrompt("the prompt is empty: a run needs at least one token.")
            if isinstance(prompt[0], str):
                rows = [self._core.prompt(text).ids[0].tolist() for text in prompt]
                return _core.prompt_of(rows, self._core.pad_token)
            if isinstance(prompt[0], (list, tuple)) and len({len(row) for row in prompt}) > 1:
                return _core.prompt_of([list(row) for row in prompt], self._core.pad_token)
            prompt = torch.as_tensor(prompt)
        as_tensor = lambda value: None if value is None else torch.as_tensor(value)  # noqa: E731
        return _core.Prompt(prompt, as_tensor(attention_mask), as_tensor(position_ids))
