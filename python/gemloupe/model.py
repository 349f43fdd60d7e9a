"""The façade: a checkpoint that is loaded, its modules and values, and what can be done with it."""

from __future__ import annotations

import dis
import gc
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from . import _core
from .accessors import Accessors
from .config import Config
from .errors import BadOption, BadPrompt, BadValue, OutsideTrace
from .modules import Module, build_tree
from .passes import GenerationTracer, Invokes
from .saving import open_tracers
from .stopping import StopTexts
from .tokenizer import Tokenizer
from .tracing import Tracer

_log = logging.getLogger("gemloupe")
_alive: weakref.WeakSet = weakref.WeakSet()

PromptLike = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | torch.Tensor | Mapping[str, Any]


def released() -> dict[str, list[str]]:
    """The released checkpoints whose configs ship with gemloupe, and the hub ids of each: what `from_config` takes by name."""
    return {name: hub_ids for name, hub_ids, _ in _core.released()}


class StandardizedTransformer(Accessors, Module):
    """A Gemma checkpoint with one name, one layout and one meaning for each value in its forward pass.

    Args:
        path_or_id: a checkpoint folder, a ``.gguf`` file, or a hub id that is in the local cache.
        dtype: ``"float32"``, ``torch.bfloat16``, …; None is what config.json says, else the
            file's own, float32 where it is quantised.
        device: where weights and runs live, as libtorch names it.
        attn_implementation: ``"eager"`` is the reference's operations, bit for bit; None or ``"sdpa"`` is the fused default.
        revision: branch, tag or commit of a hub id.
        dispatch: False reads config.json alone, as `from_config` does: names, shapes and sizes, nothing that runs.
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
        path_or_id: str | os.PathLike | Mapping[str, Any],
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
        if _alive:
            gc.collect()  # modules and their model refer to each other: one that was dropped would keep its weights
        if isinstance(path_or_id, Mapping):
            if dispatch:
                raise BadOption("a config has no weights to load: use StandardizedTransformer.from_config(config).")
            core = _core.Model.of_config(dict(path_or_id), "config", options)
        else:
            load = _core.Model.load if dispatch else _core.Model.without_weights
            core = load(os.fspath(path_or_id), options)
        for warning in core.plan.warnings:
            warnings.warn(warning, stacklevel=2)
        self._adopt(core)

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | str | os.PathLike, **options: Any) -> StandardizedTransformer:
        """A model without weights: ``print(model)``, ``support()``, config, sizes, modules and parameters' shapes.

        Args:
            config: the contents of a config.json, a path or hub id as the constructor takes it, or a released checkpoint's
                name, ``"gemma-3-4b"`` or ``"google/gemma-3-4b-pt"``: those configs ship with gemloupe.
            options: the constructor's.

        Raises:
            NotFound, BadConfig, BadOption; a run raises NotFound: there are no weights.
        """
        return cls(config, **{**options, "dispatch": False})

    def _adopt(self, core: _core.Model) -> None:
        own = self.__dict__
        own["_core"] = core
        _alive.add(self)
        own["_infos"] = core.plan.modules
        for index, info in enumerate(own["_infos"]):
            info["id"] = index
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

    def trace(
        self,
        prompt: PromptLike | None = None,
        *,
        attention_mask: Any = None,
        position_ids: Any = None,
        grad: bool = False,
        start_from: _core.TracePoint | None = None,
    ) -> Tracer | Invokes:
        """One run that the ``with`` body pulls.

        Args:
            prompt: a text, a list of texts (one left-padded batch), ids, or a mapping with ``input_ids`` and optionally
                ``attention_mask`` and ``position_ids``. None: the body opens runs itself, ``with tracer.invoke(prompt):``.
            grad: every value records its gradient: ``loss.backward()``, then ``value.grad``, also of what was saved.
            start_from: a ``tracer.point(name)``: the run goes on from there, what lies before it is not computed again.

        Raises:
            BadPrompt: empty, ids outside the vocabulary, or a mask or positions that do not fit.
        """
        if start_from is not None:
            if prompt is not None or grad:
                raise BadOption("start_from= has its own prompt, and starts without gradients: give neither.")
            return Tracer(self, _core.Trace(start_from))
        if prompt is None:
            return Invokes(self, grad)
        core = _core.Trace(self._core, self._prompt(prompt, attention_mask, position_ids))
        if grad:
            core.record_gradients()
        return Tracer(self, core)

    def __call__(self, prompt: PromptLike, **kwargs: Any) -> torch.Tensor:
        """The logits [batch, seq, vocab_size] of a run without edits."""
        core = _core.Trace(self._core, self._prompt(prompt, **kwargs))
        logits = core.read(self._row_index["logits"])
        core.finish()
        return logits

    def generate(self, prompt: PromptLike, **options: Any) -> Any:
        """The model's own continuation: the ids [batch, prompt + new], ended by the checkpoint's end-of-sequence tokens.

        As ``with model.generate(prompt, ...) as tracer:`` the same pass by pass, each to be read and edited
        (``for step in tracer.iter[:]``), with the ids in ``tracer.result``.

        Args:
            max_new_tokens: how many at most (20).
            do_sample: draw tokens instead of taking the most probable (False; True if ``seed``, ``temperature``, ``top_k``, ``top_p``
                or ``min_p`` is given).
            temperature, top_k, top_p, min_p, repetition_penalty: as transformers' generate, and applied in its order.
            seed: the same seed draws the same tokens.
            stop: a text or several: the generation ends when every row holds one.
            streamer: called with each step's tokens, one a row; False ends the generation.
            eos_token_id: in the place of the checkpoint's.

        Raises:
            BadPrompt, BadOption.
        """
        arguments = self._generate_options(prompt, **options)
        if _enters_a_with(sys._getframe(1)):
            return GenerationTracer(self, _core.Generation(self._core, *arguments))
        return self._core.generate(*arguments)

    def generation(self, prompt: PromptLike, **options: Any) -> GenerationTracer:
        """What ``with model.generate(...)`` opens, for where it is not written so (an ``ExitStack``)."""
        return GenerationTracer(self, _core.Generation(self._core, *self._generate_options(prompt, **options)))

    def generate_text(self, prompt: PromptLike, **options: Any) -> str | list[str]:
        """The continuation as text, without the prompt: a string for one prompt, a list for a batch."""
        arguments = self._generate_options(prompt, **options)
        made = self._core.generate(*arguments)[:, arguments[0].ids.shape[-1] :]
        texts = [self.tokenizer.decode(row.tolist(), skip_special_tokens=True) for row in made]
        return texts[0] if len(texts) == 1 else texts

    def _generate_options(
        self,
        prompt: PromptLike,
        *,
        max_new_tokens: int = 20,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        streamer: Callable[[list[int]], bool | None] | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> tuple[_core.Prompt, _core.GenerateOptions]:
        options = _core.GenerateOptions()
        options.max_new_tokens = max_new_tokens
        if eos_token_id is not None:
            options.end_tokens = {eos_token_id} if isinstance(eos_token_id, int) else set(eos_token_id)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        drawn = any(value is not None for value in (*given.values(), seed))
        options.do_sample = drawn if do_sample is None else do_sample
        for name, value in (given | {"repetition_penalty": repetition_penalty}).items():
            if value is not None:
                setattr(options, name, value)
        options.seed = seed
        prompt = self._prompt(prompt)
        if stop is not None or streamer is not None:
            stops = StopTexts(self, prompt, stop) if stop is not None else None
            options.on_step = lambda tokens: (
                (streamer is None or streamer(tokens) is not False)
                and not (stops is not None and stops.reached(tokens))
            )
        return prompt, options

    def skip_layer(self, layer: int, skip_with: torch.Tensor | None = None) -> None:
        """Inside a trace: the block does not run; `skip_with`, or what enters it, goes on in its place."""
        self.skip_layers(layer, layer, skip_with)

    def skip_layers(self, start_layer: int, end_layer: int, skip_with: torch.Tensor | None = None) -> None:
        """Inside a trace: the blocks from `start_layer` to `end_layer`, both included, do not run.

        Raises:
            CannotSkip: a later block borrows keys and values of one of them (Gemma 4).
        """
        first, last = range(self.num_layers)[start_layer], range(self.num_layers)[end_layer]
        for layer in range(first, last + 1):
            if skip_with is None:  # the first of them: the later ones hand on what it was given
                skip_with = self.layers[layer].layer_input
            self.layers[layer].skip(skip_with)

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer, loaded at its first use."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(_core.Tokenizer.of(self._core), _core.chat_template(self._core))
        return self._tokenizer

    def project_on_vocab(self, hidden: torch.Tensor) -> torch.Tensor:
        """The model's own readout of any hidden state [..., hidden_size]: final norm, lm_head, and the cap if it has one."""
        if not isinstance(hidden, torch.Tensor):
            raise BadValue(
                f"project_on_vocab takes hidden states [..., {self.hidden_size}], not {type(hidden).__name__}."
            )
        return self._core.project_on_vocab(hidden)

    # --------------------------------------------------------------------------------------- as people know a module

    def parameters(self) -> Iterator[torch.Tensor]:
        """The weights, each once but for a tied head."""
        return self._module.parameters()

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights with the reference's names."""
        return self._module.named_parameters()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self._module.state_dict()

    def eval(self) -> StandardizedTransformer:
        """The model itself: there is no training mode."""
        return self

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

    def _modules(self) -> list[Module]:
        return self.__dict__["_all_modules"]

    # ------------------------------------------------------------------------------------------------------- inside

    def _row(self, name: str) -> int:
        return self._core.plan.find_row(name)

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
        given = [
            name for name, v in (("attention_mask", attention_mask), ("position_ids", position_ids)) if v is not None
        ]
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
            return self._prompt(
                prompt["input_ids"],
                attention_mask if mask is None else mask,
                position_ids if positions is None else positions,
            )
        if isinstance(prompt, str):
            ids = self._core.prompt(prompt).ids
            return _core.Prompt(ids, _as_tensor(attention_mask), _as_tensor(position_ids))
        if not isinstance(prompt, torch.Tensor):
            rows = self._rows_of_prompt(prompt)
            if rows is not None:
                if given:
                    raise BadPrompt(
                        f"{' and '.join(given)}: prompts of unlike lengths are padded, and have a mask of their own."
                    )
                return _core.prompt_of(rows, self._core.pad_token)
            prompt = _as_tensor(prompt)
        return _core.Prompt(prompt, _as_tensor(attention_mask), _as_tensor(position_ids))

    def _rows_of_prompt(self, prompt: Any) -> list[list[int]] | None:
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
            return [self._core.prompt(text).ids[0].tolist() for text in items]
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


def _enters_a_with(frame: Any) -> bool:
    """Whether what the caller's current instruction returns is entered by a ``with``: only its code can tell."""
    later = (
        i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti and i.opname not in ("CACHE", "COPY")
    )
    following = next(later, None)
    return following is not None and (
        following.opname == "BEFORE_WITH" or (following.opname == "LOAD_SPECIAL" and "__exit__" in following.argrepr)
    )
