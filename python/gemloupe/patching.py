"""Causal interventions in bulk: every head ablated, every position of every layer patched, and what a metric says then."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from . import _core
from .accessors import layer_numbers
from .activations import mask_of
from .errors import BadOption, BadPrompt, BadValue
from .progress import progress as progress_bar

if TYPE_CHECKING:
    from .model import PromptLike, StandardizedTransformer

Metric: TypeAlias = "Callable[[torch.Tensor], torch.Tensor | float]"
Edit: TypeAlias = "Callable[[torch.Tensor], None]"  # of the rows that are its own, in place


@dataclass(frozen=True)
class HeadAblation:
    """A metric with each head ablated: `ablated` [layers, heads], NaN for heads that were not asked for, and `clean` without."""

    clean: float
    ablated: torch.Tensor

    @property
    def effect(self) -> torch.Tensor:
        """What ablating a head changes, [layers, heads]: negative where the head raises the metric."""
        return self.ablated - self.clean


@dataclass(frozen=True)
class ActivationPatching:
    """A metric of the corrupted run with one clean value patched in.

    Attributes:
        clean, corrupted: the metric of the runs without a patch.
        patched: [layers, positions], float64, for `layers` and `positions` in their order.
        layers: block numbers.
        positions: columns of the seq axis.
    """

    clean: float
    corrupted: float
    patched: torch.Tensor
    layers: list[int]
    positions: list[int]

    @property
    def recovered(self) -> torch.Tensor:
        """[layers, positions]: 0 where the patch does nothing, 1 where it brings the clean run's metric back."""
        return (self.patched - self.corrupted) / (self.clean - self.corrupted)


def _number(metric: Metric, logits: torch.Tensor) -> float:
    found = metric(logits)
    if isinstance(found, torch.Tensor) and found.numel() != 1:
        raise BadValue(
            f"the metric gave a tensor of the shape {list(found.shape)}; it must give one number, such as a mean."
        )
    return float(found)


def _last_logits(model: StandardizedTransformer, mask: torch.Tensor) -> torch.Tensor:
    """In a body: the logits at each row's last token [rows, vocab_size], float32 at least."""
    if bool((mask[:, -1] != 0).all()):
        return model.logits[:, -1].float()
    last = torch.arange(mask.shape[1], device=mask.device).mul(mask != 0).argmax(-1)
    return model.logits[torch.arange(len(mask), device=mask.device), last].float()


def _sweep(
    model: StandardizedTransformer,
    prompt: _core.Prompt,
    metric: Metric,
    edits: Mapping[str, Sequence[Edit]],
    copies: int,
    desc: str | None,
) -> tuple[float, dict[str, list[float]]]:
    """The metric without an edit, and of each value's name with each of its edits.

    One run of the prompt goes along. At each value its edits branch off, `copies` at a time as rows of one batch, so that what lies
    before the value is computed once for all of them.
    """
    mask, rows = mask_of(prompt), len(prompt.ids)
    found: dict[str, list[float]] = {name: [] for name in edits}
    work = [(name, chunk) for name in _in_order(model, edits) for chunk in _chunks(edits[name], copies)]
    point, at = None, ""
    with model.trace(prompt) as tracer:
        for name, chunk in progress_bar(work, desc=desc) if desc else work:
            if name != at:
                point, at = tracer.point(name), name
            with model.trace(start_from=point.repeat(len(chunk))) as branches:
                value = branches.read(name)
                for number, edit in enumerate(chunk):
                    edit(value[number * rows : (number + 1) * rows])
                logits = _last_logits(model, mask.repeat(len(chunk), 1))
            found[name] += [_number(metric, part) for part in logits.split(rows)]
        return _number(metric, _last_logits(model, mask)), found


def _in_order(model: StandardizedTransformer, names: Iterable[str]) -> list[str]:
    """The names as a run reaches them."""
    return sorted(names, key=lambda name: model._row_table[model._row(name)].position)


def _chunks(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _copies(batch_size: int, prompt: _core.Prompt) -> int:
    if batch_size < 1:
        raise BadOption(f"batch_size={batch_size} is below 1.")
    return max(batch_size // len(prompt.ids), 1)


# --------------------------------------------------------------------------------------------------------------- heads


@torch.no_grad()
def head_ablation(
    model: StandardizedTransformer,
    prompt: PromptLike,
    metric: Metric,
    heads: Iterable[tuple[int, int]] | None = None,
    *,
    batch_size: int = 32,
    progress: bool = True,
) -> HeadAblation:
    """The metric with one head at a time saying nothing (its part of `attention_premix` is zero at every position).

    Args:
        prompt: as ``model.trace`` takes it.
        metric: the logits at the last token of each prompt [prompts, vocab_size], float32, softcapped, to one number.
        heads: (layer, head) pairs, negative ones from the end; None is every head.
        batch_size: how many rows a run has at most; heads of one layer share a run.
        progress: show a bar on standard error.

    Raises:
        BadOption: no such head; batch_size below 1.
        BadValue: the metric gives no single number.
    """
    prompt = model._prompt(prompt)
    by_layer = _heads_by_layer(model, heads)
    edits: dict[str, list[Edit]] = {
        f"layers.{layer}.self_attn.attention_premix": [_silence(head) for head in wanted]
        for layer, wanted in by_layer.items()
    }
    clean, metrics = _sweep(model, prompt, metric, edits, _copies(batch_size, prompt), "heads" if progress else None)
    found = torch.full(
        (model.num_layers, max(layer.num_heads for layer in model.layers)), math.nan, dtype=torch.float64
    )
    for (layer, wanted), name in zip(by_layer.items(), edits, strict=True):
        found[layer, wanted] = torch.tensor(metrics[name], dtype=torch.float64)
    return HeadAblation(clean, found)


def _silence(head: int) -> Edit:
    def edit(premix: torch.Tensor) -> None:
        premix[:, :, head] = 0

    return edit


def _heads_by_layer(model: StandardizedTransformer, heads: Iterable[tuple[int, int]] | None) -> dict[int, list[int]]:
    if heads is None:
        return {i: list(range(layer.num_heads)) for i, layer in enumerate(model.layers)}
    found: dict[int, list[int]] = {}
    for pair in heads:
        try:
            layer, head = pair
        except (TypeError, ValueError):
            raise BadOption(f"heads: {pair!r} is no (layer, head) pair.") from None
        (layer,) = layer_numbers(model, layer)
        count = model.layers[layer].num_heads
        if not -count <= head < count:
            raise BadOption(f"heads: block {layer} has no head {head}; it has {count}, 0 to {count - 1}.")
        wanted = found.setdefault(layer, [])
        if head % count not in wanted:
            wanted.append(head % count)
    return dict(sorted(found.items()))


# ---------------------------------------------------------------------------------------------------------- positions


@torch.no_grad()
def activation_patching(
    model: StandardizedTransformer,
    clean: PromptLike,
    corrupted: PromptLike,
    metric: Metric,
    values: str | Sequence[str] = "layer_output",
    *,
    layers: int | Sequence[int] | None = None,
    positions: int | Sequence[int] | None = None,
    batch_size: int = 32,
    progress: bool = True,
) -> ActivationPatching | dict[str, ActivationPatching]:
    """The metric of the corrupted run with one value at one position of one layer as in the clean run, for each in turn.

    Args:
        clean, corrupted: as ``model.trace`` takes them, with as many tokens each.
        metric: the logits at the last token of each prompt [prompts, vocab_size], float32, softcapped, to one number.
        values: a value of the blocks with a seq axis, such as "layer_output", "attention_output", "mlp_output"; several give a dict.
        layers: block numbers, negative ones from the end; None is every block.
        positions: columns of the seq axis, padding included, negative ones from the end; None is each.
        batch_size: how many rows a run has at most; positions of one layer share a run.
        progress: show a bar on standard error.

    Raises:
        BadPrompt: the prompts are not of one length.
        BadOption: no such block or position, a value without a seq axis; batch_size below 1.
        UnknownName, Absent: no such value.
        BadValue: the metric gives no single number.
    """
    if not isinstance(values, str):
        options = dict(layers=layers, positions=positions, batch_size=batch_size, progress=progress)
        return {name: activation_patching(model, clean, corrupted, metric, name, **options) for name in values}
    clean, corrupted = _alike(model._prompt(clean), model._prompt(corrupted))
    numbers, columns = layer_numbers(model, layers), _columns(positions, clean.ids.shape[1])
    names = {layer: _value_of_block(model, layer, values) for layer in numbers}
    axis = _seq_axis(model, names)
    with model.trace(clean) as tracer:
        sources = {layer: tracer.read(names[layer]).save() for layer in sorted(names)}
        clean_logits = _last_logits(model, mask_of(clean))
    edits: dict[str, list[Edit]] = {
        name: [_patch(sources[layer], axis, column) for column in columns] for layer, name in names.items()
    }
    copies, desc = _copies(batch_size, corrupted), values if progress else None
    of_corrupted, found = _sweep(model, corrupted, metric, edits, copies, desc)
    patched = torch.tensor([found[names[layer]] for layer in numbers], dtype=torch.float64)
    return ActivationPatching(_number(metric, clean_logits), of_corrupted, patched, numbers, columns)


def _patch(source: torch.Tensor, axis: int, column: int) -> Edit:
    def edit(value: torch.Tensor) -> None:
        value.select(axis, column).copy_(source.select(axis, column))

    return edit


def _alike(clean: _core.Prompt, corrupted: _core.Prompt) -> tuple[_core.Prompt, _core.Prompt]:
    if clean.ids.shape != corrupted.ids.shape or not torch.equal(mask_of(clean), mask_of(corrupted)):
        counts = [mask_of(prompt).sum(-1).tolist() for prompt in (clean, corrupted)]
        raise BadPrompt(
            f"the clean prompt has {counts[0]} tokens and the corrupted one {counts[1]}: positions are patched one to one, so each "
            "pair needs as many."
        )
    return clean, corrupted


def _columns(positions: int | Sequence[int] | None, length: int) -> list[int]:
    if positions is None:
        return list(range(length))
    listed = [positions] if isinstance(positions, int) else [int(position) for position in positions]
    for position in listed:
        if not -length <= position < length:
            raise BadOption(f"positions: there is no position {position}; the prompt has {length}, 0 to {length - 1}.")
    return [position % length for position in listed]


def _value_of_block(model: StandardizedTransformer, layer: int, value: str) -> str:
    """The full name of a block's value, whether it is given with its host ("mlp.mlp_output") or without."""
    block = model.layers[layer]
    if "." not in value:
        for host in (block, block.self_attn, block.mlp):
            if value in host._rows:
                return host._rows[value][1]
    return f"layers.{layer}.{value}"


def _seq_axis(model: StandardizedTransformer, names: dict[int, str]) -> int:
    for name in names.values():
        axes = list(model._row_table[model._row(name)].axes)
        if "seq" not in axes:
            raise BadOption(
                f"'{name}' has the axes {', '.join(axes)}: without a seq axis there are no positions to patch."
            )
    return axes.index("seq") if names else 1
