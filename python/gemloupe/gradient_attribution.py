"""Attribution by gradients: what a change of any value does to a metric, to first order or along a straight path."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy
import torch

from . import _core
from .accessors import layer_numbers
from .activations import mask_of
from .errors import BadOption, BadPrompt, BadValue
from .patching import (
    ActivationPatching,
    Metric,
    _alike,
    _chunks,
    _columns,
    _copies,
    _in_order,
    _last_logits,
    _number,
    _seq_axis,
    _value_of_block,
)
from .progress import progress as progress_bar
from .rows import LogitRows

if TYPE_CHECKING:
    from .model import PromptLike, StandardizedTransformer

EMBEDDINGS = "token_embeddings"
HEADS = ("num_heads", "num_kv_heads")


# ------------------------------------------------------------------------------------------------------ recorded runs


@dataclass(frozen=True)
class _Run:
    """A run that was recorded.

    Attributes:
        metrics: of each copy of the prompt's rows, [copies].
        values: by name, each [copies * rows, ...]; tensors of the graph that `metrics` came from.
    """

    metrics: torch.Tensor
    values: dict[str, torch.Tensor]

    def detach(self) -> _Run:
        """The same without the graph, which keeps every tensor of the run."""
        return _Run(self.metrics.detach(), {name: value.detach() for name, value in self.values.items()})

    def gradients(self) -> dict[str, torch.Tensor]:
        """Of each copy's metric with respect to that copy's rows of the values; float64."""
        found = torch.autograd.grad(self.metrics.sum(), list(self.values.values()), materialize_grads=True)
        return {name: gradient.double() for name, gradient in zip(self.values, found, strict=True)}


def _run(
    model: StandardizedTransformer,
    prompt: _core.Prompt,
    metric: Metric,
    names: Sequence[str],
    written: tuple[str, torch.Tensor] | None = None,
) -> _Run:
    """A recorded run of the prompt with one value `written`: of as many copies as that has rows for.

    What needs no gradients is recorded as well: in bfloat16 other kernels may compute what is not, and a difference of values
    would hold their rounding.
    """
    rows = len(prompt.ids)
    batch = prompt if written is None else _repeated(prompt, len(written[1]) // rows)
    with model.trace(batch, grad=True) as tracer:
        if written is not None:
            tracer.write(written[0], written[1].detach().requires_grad_())  # a constant would end the graph
        values = {name: _tensor(tracer.read(name)) for name in names}
        logits = _last_logits(model, mask_of(batch))
    for name, value in values.items():
        if not value.requires_grad:
            raise BadOption(f"'{name}' holds integers, which have no gradient.")
    return _Run(torch.stack([_recorded_number(metric, part) for part in logits.split(rows)]), values)


def _repeated(prompt: _core.Prompt, times: int) -> _core.Prompt:
    """The prompt's rows `times` times over."""
    again = lambda tensor: None if tensor is None else tensor.repeat(times, 1)  # noqa: E731
    return _core.Prompt(again(prompt.ids), again(prompt.attention_mask), again(prompt.position_ids))


def _tensor(value: torch.Tensor | LogitRows) -> torch.Tensor:
    return value.tensor() if isinstance(value, LogitRows) else value


def _recorded_number(metric: Metric, logits: torch.Tensor) -> torch.Tensor:
    found = metric(logits)
    if not (isinstance(found, torch.Tensor) and found.requires_grad):
        raise BadValue(
            "the metric gave a number without a gradient, and its gradient is needed: compute it with torch from the logits "
            "that it is given, without .item(), .detach() or no_grad."
        )
    _number(lambda _: found.detach(), logits)  # refuses more than one
    return found.reshape(())


@dataclass(frozen=True)
class _Path:
    """A straight path of one value, gone along at a Gauss-Legendre rule's `steps` points, `copies` of them in a run."""

    value: str
    start: torch.Tensor
    end: torch.Tensor
    steps: int
    copies: int

    def __iter__(self) -> Iterator[tuple[list[float], torch.Tensor]]:
        """For each run the weights of its points, and what is written there: [points * rows, ...]."""
        places, weights = (part / 2 for part in numpy.polynomial.legendre.leggauss(self.steps))
        for chunk in _chunks(list(zip((places + 0.5).tolist(), weights.tolist(), strict=True)), self.copies):
            points = [self.start.double().lerp(self.end.double(), place) for place, _ in chunk]
            yield [weight for _, weight in chunk], torch.cat(points).to(self.end.dtype)

    def __len__(self) -> int:
        return -(-self.steps // self.copies)

    def mean_gradients(
        self,
        model: StandardizedTransformer,
        prompt: _core.Prompt,
        metric: Metric,
        names: Sequence[str],
        progress: bool,
    ) -> dict[str, torch.Tensor]:
        """The gradients averaged along the path, each [rows, ...], float64."""
        runs: Iterable[tuple[list[float], torch.Tensor]] = self
        totals: dict[str, torch.Tensor] = {}
        for weights, points in progress_bar(runs, desc=self.value, total=len(self)) if progress else runs:
            for name, gradient in _run(model, prompt, metric, names, (self.value, points)).gradients().items():
                parts = gradient.chunk(len(weights))
                total = sum(weight * part for weight, part in zip(weights, parts, strict=True))
                totals[name] = totals[name] + total if name in totals else total
        return totals


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise BadOption(f"steps={steps} is below 1.")


# ------------------------------------------------------------------------------------------------ attribution patching


@dataclass(frozen=True)
class AttributionPatching(ActivationPatching):
    """An ``ActivationPatching`` that gradients estimate.

    Attributes:
        clean, corrupted: the metric of the runs without a patch, as they are.
        patched: the estimate of the metric with the patch: [layers, positions], or [layers, positions, heads] with NaN for heads
            that a layer does not have; float64.
        layers: block numbers.
        positions: columns of the seq axis.
    """

    @property
    def effect(self) -> torch.Tensor:
        """What the patch changes, of the shape of `patched`: (clean value - corrupted value) · gradient."""
        return self.patched - self.corrupted


@torch.inference_mode(False)
def attribution_patching(
    model: StandardizedTransformer,
    clean: PromptLike,
    corrupted: PromptLike,
    metric: Metric,
    values: str | Sequence[str] = "layer_output",
    *,
    layers: int | Sequence[int] | None = None,
    positions: int | Sequence[int] | None = None,
    heads: bool = False,
    steps: int | None = None,
    batch_size: int = 32,
    progress: bool = True,
) -> AttributionPatching | dict[str, AttributionPatching]:
    """``activation_patching`` to first order: (clean value - corrupted value) · gradient of the metric in the corrupted run.

    Every value, layer, position and head comes from one run of each prompt and one way back, where ``activation_patching`` takes
    a run for each. It is as good as the metric is linear between the two values; compare the patches that matter with
    ``activation_patching``, or take `steps`.

    Args:
        clean, corrupted: as ``model.trace`` takes them, with as many tokens each.
        metric: the logits at the last token of each prompt [prompts, vocab_size], float32, softcapped, to one number, computed
            with torch so that it has a gradient.
        values: a value of the blocks with a seq axis, such as "layer_output", "attention_output", "mlp_output"; several give a dict.
        layers: block numbers, negative ones from the end; None is every block.
        positions: columns of the seq axis, padding included, negative ones from the end; None is each.
        heads: each head on its own, of a value with an axis of heads: "attention_premix", "attention_queries", ….
        steps: None takes the gradient of the corrupted run; a number the mean over as many points of the straight path from the
            corrupted prompt's `token_embeddings` to the clean one's. The ids stay the corrupted prompt's, and with them the
            per-layer embeddings of Gemma 4 E2B and E4B.
        batch_size: how many rows a run on that path has at most.
        progress: show a bar on standard error for that path.

    Raises:
        BadPrompt: the prompts are not of one length.
        BadOption: no such block or position, no block at all; a value without a seq axis, a gradient or, with `heads`, heads;
            steps or batch_size below 1.
        UnknownName, Absent: no such value.
        BadValue: the metric gives no single number, or one without a gradient.
    """
    wanted = [values] if isinstance(values, str) else list(values)
    clean, corrupted = _alike(model._prompt(clean), model._prompt(corrupted))
    numbers, columns = layer_numbers(model, layers), _columns(positions, clean.ids.shape[1])
    if not numbers or not wanted:
        raise BadOption(f"{'values' if numbers else 'layers'} is empty: name at least one.")
    copies = _copies(batch_size, corrupted)
    named = {value: [_value_of_block(model, layer, value) for layer in numbers] for value in wanted}
    axes = {value: _kept_axes(model, named[value], heads) for value in wanted}
    names = _in_order(model, {name for value in wanted for name in named[value]})
    if steps is None:
        source = _run(model, clean, metric, names).detach()
        recorded = _run(model, corrupted, metric, names)
        gradients, base = recorded.gradients(), recorded.detach()
    else:
        _check_steps(steps)
        source, base = (_run(model, prompt, metric, [EMBEDDINGS, *names]).detach() for prompt in (clean, corrupted))
        path = _Path(EMBEDDINGS, base.values[EMBEDDINGS], source.values[EMBEDDINGS], steps, copies)
        gradients = path.mean_gradients(model, corrupted, metric, names, progress)

    def estimate(value: str) -> AttributionPatching:
        effects = [
            _sums((source.values[name].double() - base.values[name]) * gradients[name], axes[value])[columns]
            for name in named[value]
        ]
        before, after = base.metrics.item(), source.metrics.item()
        return AttributionPatching(after, before, before + _stack(effects), numbers, columns)

    found = {value: estimate(value) for value in wanted}
    return found[values] if isinstance(values, str) else found


def _kept_axes(model: StandardizedTransformer, names: list[str], heads: bool) -> list[int]:
    """The axes that a result has: seq, and with `heads` that of the heads."""
    seq = _seq_axis(model, dict(enumerate(names)))
    if not heads:
        return [seq]
    axes = list(model._row_table[model._row(names[0])].axes)
    of_heads = [place for place, axis in enumerate(axes) if axis in HEADS]
    if not of_heads:
        raise BadOption(f"heads=True: '{names[0]}' has the axes {', '.join(axes)}, none of them of heads.")
    return [seq, *of_heads]


def _sums(terms: torch.Tensor, kept: list[int]) -> torch.Tensor:
    """The sums over all other axes, the kept ones in their order; on the CPU."""
    return terms.movedim(kept, list(range(len(kept)))).flatten(len(kept)).sum(-1).cpu()


def _stack(layers: list[torch.Tensor]) -> torch.Tensor:
    """[layers, positions] or [layers, positions, heads], with NaN where a layer has fewer heads than another."""
    if layers[0].ndim == 2:
        most = max(layer.shape[1] for layer in layers)
        layers = [torch.nn.functional.pad(layer, (0, most - layer.shape[1]), value=math.nan) for layer in layers]
    return torch.stack(layers)


# ------------------------------------------------------------------------------------------------ integrated gradients


@dataclass(frozen=True)
class IntegratedGradients:
    """What each component of a value adds to a metric, counted from a baseline.

    Attributes:
        attributions: of the value's shape, float64; they sum to `clean` - `baseline` but for `completeness_error`.
        clean: the metric of the run.
        baseline: the metric with the baseline in the value's place.
        seq_axis: the seq axis of `attributions`.
    """

    attributions: torch.Tensor
    clean: float
    baseline: float
    seq_axis: int

    @property
    def by_position(self) -> torch.Tensor:
        """The sums over all but rows and positions, [batch, seq]."""
        return _sums(self.attributions, [0, self.seq_axis])

    @property
    def completeness_error(self) -> float:
        """The sum of the attributions less (`clean` - `baseline`): what more steps, or a nearer baseline, would take away."""
        return float(self.attributions.sum()) - (self.clean - self.baseline)


@torch.inference_mode(False)
def integrated_gradients(
    model: StandardizedTransformer,
    prompt: PromptLike,
    metric: Metric,
    *,
    value: str = EMBEDDINGS,
    baseline: torch.Tensor | PromptLike | None = None,
    steps: int = 32,
    batch_size: int = 32,
    progress: bool = True,
) -> IntegratedGradients:
    """(value - baseline) · the metric's gradient averaged along the straight path from the baseline to the value.

    Choose the baseline with care: the norms of Gemma do not see how long a stream is, so that on the way from zeros nearly
    everything happens in the first thousandth, and without `<bos>` attention has nowhere to rest. A prompt that differs in the
    tokens of interest is a good one for streams and embeddings, zeros are for `mlp_neurons`.

    Args:
        prompt: as ``model.trace`` takes it.
        metric: the logits at the last token of each prompt [prompts, vocab_size], float32, softcapped, to one number, computed
            with torch so that it has a gradient.
        value: the full name of a value with a seq axis ("layers.3.mlp.mlp_neurons"); all else in the run stays as it is. Of
            `token_embeddings` that is all that comes from the ids, but for the per-layer embeddings of Gemma 4 E2B and E4B.
        baseline: a prompt with as many tokens, whose value is meant; a floating-point tensor that broadcasts to the value; None is
            zeros.
        steps: how many points a Gauss-Legendre rule takes on the path.
        batch_size: how many rows a run has at most; points share a run.
        progress: show a bar on standard error.

    Raises:
        BadPrompt: the baseline is a prompt of another length.
        BadOption: a value without a seq axis or a gradient; steps or batch_size below 1.
        UnknownName, Absent: no such value.
        BadValue: the baseline is of another shape; the metric gives no single number, or one without a gradient.

    Warns:
        UserWarning: the attributions miss `clean` - `baseline` by more than a tenth of it.
    """
    _check_steps(steps)
    prompt = model._prompt(prompt)
    copies, axis = _copies(batch_size, prompt), _seq_axis(model, {0: value})
    run = _run(model, prompt, metric, [value]).detach()
    end = run.values[value]
    start = _start(model, prompt, metric, value, end, baseline)
    gradient = _Path(value, start, end, steps, copies).mean_gradients(model, prompt, metric, [value], progress)[value]
    attributions = ((end.double() - start) * gradient).cpu()
    without = _run(model, prompt, metric, [], (value, start))
    found = IntegratedGradients(attributions, run.metrics.item(), without.metrics.item(), axis)
    if abs(found.completeness_error) > abs(found.clean - found.baseline) / 10:
        warnings.warn(
            f"the attributions sum to {found.clean - found.baseline + found.completeness_error:.4g}, but the metric differs by "
            f"{found.clean - found.baseline:.4g}: take more steps than {steps}, or a baseline nearer to the value.",
            stacklevel=3,  # the decorator's frame is between
        )
    return found


def _start(
    model: StandardizedTransformer,
    prompt: _core.Prompt,
    metric: Metric,
    value: str,
    end: torch.Tensor,
    baseline: torch.Tensor | PromptLike | None,
) -> torch.Tensor:
    """The baseline as a tensor like `end`."""
    if baseline is None:
        return torch.zeros_like(end)
    if isinstance(baseline, torch.Tensor) and baseline.is_floating_point():
        try:
            return baseline.detach().to(end).expand_as(end)
        except RuntimeError:
            raise BadValue(
                f"baseline has the shape {list(baseline.shape)}, which does not broadcast to that of '{value}', {list(end.shape)}."
            ) from None
    other = model._prompt(baseline)
    if other.ids.shape != prompt.ids.shape or not torch.equal(mask_of(other), mask_of(prompt)):
        counts = [mask_of(each).sum(-1).tolist() for each in (other, prompt)]
        raise BadPrompt(f"the baseline has {counts[0]} tokens, the prompt {counts[1]}: a baseline needs as many.")
    return _run(model, other, metric, [value]).detach().values[value]
