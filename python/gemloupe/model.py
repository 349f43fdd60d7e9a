"""The façade: a checkpoint that is loaded, its modules and values, and what can be done with it."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from . import _core
from .accessors import Accessors, layer_numbers
from .config import Config
from .errors import BadOption, BadValue, OutsideTrace
from .generating import enters_a_with, generate_options
from .modules import Module, build_tree
from .passes import GenerationTracer, Generator, Invokes
from .prompts import PromptLike, prompt_of
from .recording import Edit, StandingEdit
from .saving import open_tracers
from .tokenizer import Tokenizer
from .tracing import Tracer

_log = logging.getLogger("gemloupe")
_alive: weakref.WeakSet = weakref.WeakSet()


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
        attn_implementation: None: fast kernels. ``"eager"``: the reference's operations, bit for bit. ``"sdpa"``: as None, but Gemma 2
            without its cap of scores.
        revision: branch, tag or commit of a hub id.
        dispatch: False reads config.json alone, as `from_config` does: names, shapes and sizes, nothing that runs.
        task: ``"text-generation"`` or None.
        dequantize: True widens every weight at load. Otherwise matrices stay as they lie in the file, quantised or bfloat16 in a
            float32 run, and are widened where they are used: products differ from those of widened ones by rounding alone. Eager
            runs are of widened weights always.
        final_logit_softcapping: ``"default"``, ``"config"``, None for no cap, or a number.
        threads: how many threads compute, libtorch's and our own kernels alike.
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
        options = _core.LoadOptions()
        options.dtype = None if dtype is None else str(dtype)
        options.device = str(device)
        options.attn_implementation = attn_implementation or ""
        options.revision = revision
        options.final_logit_softcapping = "none" if final_logit_softcapping is None else str(final_logit_softcapping)
        options.dequantize = bool(dequantize)
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
        own["edits"] = ()
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
        _log.info("%s: %s, %d blocks", core.path, core.plan.class_name, self.num_layers)

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
            if not isinstance(start_from, _core.TracePoint):
                raise BadOption(
                    f"start_from= is a point of a run, tracer.point(name), but it is {type(start_from).__name__}."
                )
            if prompt is not None or grad or attention_mask is not None or position_ids is not None:
                raise BadOption(
                    "start_from= has its own prompt, mask and positions, and starts without gradients: give none of them."
                )
            return Tracer(self, _core.Trace(self._core, start_from))
        if prompt is None:
            if attention_mask is not None or position_ids is not None:
                raise BadOption("a mask and positions belong to a prompt: give them to tracer.invoke(prompt, ...).")
            return Invokes(self, grad)
        core = _core.Trace(self._core, self._prompt(prompt, attention_mask, position_ids))
        if grad:
            core.record_gradients()
        return Tracer(self, core)

    def scan(self, prompt: PromptLike, *, attention_mask: Any = None, position_ids: Any = None) -> Tracer:
        """A trace of shapes alone: ``with model.scan(prompt): print(model.layers[5].layer_output.shape)``.

        Values are on torch's meta device: shapes and dtypes without numbers. No weight is read, nothing is computed, standing
        edits are not made; a model made of a config (`from_config`) has it, too.

        Args:
            prompt, attention_mask, position_ids: as `trace` takes them; a text needs a tokenizer.

        Raises:
            BadPrompt.
        """
        return Tracer(self, _core.Trace.scan(self._core, self._prompt(prompt, attention_mask, position_ids)))

    def edit(self, inplace: bool = False) -> Edit:
        """Edits that every run makes: ``with model.edit() as edited:`` gives a model that has them, with the same weights.

        ::

            with model.edit() as edited:
                model.layers[8].mlp.mlp_output *= 0.5
                model.layers[3].layer_output[:, -1] += vector
                model.layers[5].self_attn.attention_premix.apply(function)
            edited.generate(prompt)
            print(*edited.edits, sep="\\n")

        Kept are ``=``, ``[...] =``, ``op=``, methods that end in ``_`` and ``.apply(function)``, on any value or port, with the
        very tensors that are named; any other use is refused. Each run makes them before its own body sees the value.
        `edits` lists them, `undo` and `clear_edits` take them back.

        Args:
            inplace: this model gets them itself.

        Raises:
            UnknownName, Absent, ReadOnly, BadValue, OutsideTrace.
        """
        return Edit(self, self if inplace else self._copy())

    def undo(self, edit: StandingEdit | None = None) -> StandingEdit:
        """Takes back one of `edits`, the last if none is named, and gives it. Raises BadOption where there is none."""
        if not self.edits or (edit is not None and edit not in self.edits):
            raise BadOption("there is no such standing edit in model.edits." if edit else "there is no standing edit.")
        edit = edit or self.edits[-1]
        self._set_edits([other for other in self.edits if other is not edit])
        return edit

    def clear_edits(self) -> None:
        """Takes back all standing edits."""
        self._set_edits([])

    def _copy(self) -> StandardizedTransformer:
        copy = object.__new__(type(self))
        copy._adopt(self._core)
        copy.__dict__["_tokenizer"] = self._tokenizer
        copy._set_edits(self.edits)
        return copy

    def _set_edits(self, edits: Sequence[StandingEdit]) -> None:
        self.__dict__["edits"] = tuple(edits)
        self.__dict__["_core"] = self._core.with_edits([(edit._row, edit, edit.text) for edit in edits])

    def __call__(self, prompt: PromptLike, *, attention_mask: Any = None, position_ids: Any = None) -> torch.Tensor:
        """The logits [batch, seq, vocab_size] of a run without a body; standing edits are made."""
        core = _core.Trace(self._core, self._prompt(prompt, attention_mask, position_ids))
        logits = core.read(self._row_index["logits"])
        core.finish()
        return logits

    def generate(self, prompt: PromptLike | None = None, **options: Any) -> Any:
        """The model's own continuation: the ids [batch, prompt + new], ended by the checkpoint's end-of-sequence tokens.

        As ``with model.generate(prompt, ...) as tracer:`` the same pass by pass, each to be read and edited
        (``for step in tracer.iter[:]``), with the ids in ``tracer.result``.

        Args:
            prompt: as `trace` takes it, with ``attention_mask`` and ``position_ids``; padding stands on the left.
            max_new_tokens: how many at most (20).
            do_sample: draw tokens (True), or take the most probable (False). None: True where ``seed``, ``temperature``, ``top_k``,
                ``top_p`` or ``min_p`` is given.
            temperature, top_k, top_p, min_p, repetition_penalty: as transformers' generate, and applied in its order.
            seed: the same seed draws the same tokens; None draws others each time.
            stop: a text or several: the generation ends when every row holds one.
            streamer: called with each step's tokens, one a row; False ends the generation.
            eos_token_id: in the place of the checkpoint's; [] for none.

        What is not given is what the checkpoint's generation_config.json says: tokens are drawn where it has ``do_sample``.

        Raises:
            BadPrompt, BadOption.
        """
        arguments = generate_options(self, prompt, **options)
        if enters_a_with(sys._getframe(1)):
            return GenerationTracer(self, _core.Generation(self._core, *arguments))
        return self._core.generate(*arguments)

    def generation(self, prompt: PromptLike | None = None, **options: Any) -> GenerationTracer:
        """What ``with model.generate(...)`` opens, for where it is not written so (an ``ExitStack``)."""
        return GenerationTracer(self, _core.Generation(self._core, *generate_options(self, prompt, **options)))

    def generate_text(self, prompt: PromptLike | None = None, **options: Any) -> str | list[str]:
        """The continuation as text, without the prompt: a string for one prompt, a list for a batch."""
        several = (
            not isinstance(prompt, str) and isinstance(prompt, Sequence) and any(isinstance(p, str) for p in prompt)
        )
        arguments = generate_options(self, prompt, **options)
        made = self._core.generate(*arguments)[:, arguments[0].ids.shape[-1] :]
        texts = [self.tokenizer.decode(row.tolist(), skip_special_tokens=True) for row in made]
        return texts[0] if len(texts) == 1 and not several else texts

    def skip_layer(self, layer: int, skip_with: torch.Tensor | None = None) -> None:
        """Inside a trace: the block does not run; `skip_with`, or what enters it, goes on in its place."""
        self.skip_layers(layer, layer, skip_with)

    def skip_layers(self, start_layer: int, end_layer: int, skip_with: torch.Tensor | None = None) -> None:
        """Inside a trace: the blocks from `start_layer` to `end_layer`, both included, do not run.

        Raises:
            CannotSkip: a block behind them borrows keys and values of one of them (Gemma 4); nothing is skipped then.
            BadOption: no such block.
        """
        first, last = layer_numbers(self, [start_layer, end_layer])
        if first > last:
            raise BadOption(f"skip_layers({start_layer}, {end_layer}): the first block to skip comes after the last.")
        ids, name = [self.layers[layer]._info["id"] for layer in (first, last)], f"layers.{last}.output"
        self._tracer(name)._skip(*ids, name, skip_with)

    @property
    def generator(self) -> Generator:
        """In a ``with model.generate(...)``: ``model.generator.output`` are the ids made so far, as ``tracer.result``."""
        return Generator(self)

    @property
    def dtype(self) -> torch.dtype:
        """What runs compute in. Weights may be stored otherwise, and are shown in it."""
        return self._core.dtype

    @property
    def device(self) -> torch.device:
        """Where weights and values are; of a model without weights ``meta``."""
        return self._core.device

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

    def _tracer(self, name: str) -> Any:
        for tracer in reversed(open_tracers()):  # those of other models may be open, too
            if tracer._model is self or tracer._also is self:
                return tracer
        raise OutsideTrace(
            f"'{name}' exists while a run goes on: read and write it inside `with model.trace(prompt):`, and .save() what is "
            "needed afterwards."
        )

    def _prompt(self, prompt: PromptLike, attention_mask: Any = None, position_ids: Any = None) -> _core.Prompt:
        return prompt_of(self._core, prompt, attention_mask, position_ids)
