"""Streams at one token of each prompt, and next-token distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from . import _core
from .accessors import layer_numbers
from .errors import BadOption, OutOfOrder
from .tracing import Tracer

if TYPE_CHECKING:
    from .model import PromptLike, StandardizedTransformer

GetActivations: TypeAlias = "Callable[[StandardizedTransformer, int], torch.Tensor]"


def check_remote(remote: bool) -> None:
    """There is no server to run on. Raises BadOption for anything but False."""
    if remote:
        raise BadOption("remote=True: gemloupe runs models in this process and knows no server; leave remote=False.")


def token_columns(mask: torch.Tensor, index: int | torch.Tensor) -> torch.Tensor:
    """Where each row's token number `index` lies on the seq axis.

    Tokens are counted without padding: 0 is a row's first token, -1 its last, on whichever side the padding is.

    Args:
        mask: [batch, seq], zeros are padding.
        index: one for all rows, or [batch].

    Returns:
        [batch], int64.

    Raises:
        BadOption: a row has no such token.
    """
    real = mask != 0
    counts = real.sum(-1)
    wanted = torch.as_tensor(index, device=mask.device).expand(counts.shape)
    ranks = torch.where(wanted < 0, counts + wanted, wanted)
    outside = (ranks < 0) | (ranks >= counts)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise BadOption(f"there is no token {int(wanted[row])} in prompt {row}, which has {int(counts[row])} tokens.")
    return (real & (real.cumsum(-1) == ranks[:, None] + 1)).int().argmax(-1)


def mask_of(prompt: _core.Prompt) -> torch.Tensor:
    """A prompt's mask [batch, seq]; ones where it has none."""
    return torch.ones_like(prompt.ids) if prompt.attention_mask is None else prompt.attention_mask


def at_token(mask: torch.Tensor, index: int | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, columns), each [batch], which pick token `index` of every prompt out of a [batch, seq, ...] value."""
    columns = token_columns(mask, index)
    return torch.arange(len(columns), device=columns.device), columns


def _mask_of_run(tracer: Tracer) -> torch.Tensor:
    try:
        return tracer.read("attention_mask")
    except OutOfOrder:
        raise OutOfOrder(
            "get_token_activations needs the run's attention_mask, to know which positions are padding, and the body is past "
            "it: call it first in the body, or pass prompts= as well."
        ) from None


def layer_output(model: StandardizedTransformer, layer: int) -> torch.Tensor:
    """The stream leaving a block [batch, seq, hidden_size]."""
    return model.layers_output[layer]


@torch.no_grad()
def get_token_activations(
    nn_model: StandardizedTransformer,
    prompts: PromptLike | None = None,
    layers: int | Sequence[int] | None = None,
    get_activations: GetActivations | None = None,
    remote: bool = False,
    idx: int | None = None,
    tracer: Tracer | None = None,
) -> torch.Tensor:
    """One token's activations in each prompt, at each of `layers`.

    The run ends at the last layer that is asked for.

    Args:
        prompts: as ``model.trace`` takes them; may be left out where `tracer` is given.
        layers: block numbers, negative ones from the end, in the order of the result; None is every block.
        get_activations: (model, layer) to a [batch, seq, ...] value of that block; None is the stream leaving it.
        remote: False.
        idx: which token, counted in each prompt without its padding: 0 is <bos>, -1 (and None) the last.
        tracer: an open trace to read in, at the start of its body unless `prompts` are given as well; None opens one.

    Returns:
        [layers, prompts, ...] in the model's dtype: on the CPU; on the model's device where `tracer` is given.

    Raises:
        BadOption: no such block, or no such token in one of the prompts; remote.
        OutOfOrder: the open trace has passed what is needed.
    """
    check_remote(remote)
    if tracer is None and prompts is None:
        raise BadOption("get_token_activations needs prompts, or a tracer to read in.")
    numbers = layer_numbers(nn_model, layers)
    if not numbers:
        raise BadOption("layers is empty: name at least one block.")
    get = get_activations or layer_output
    index = -1 if idx is None else idx
    prompt = None if prompts is None else nn_model._prompt(prompts)

    def collect(mask: torch.Tensor) -> torch.Tensor:
        where = at_token(mask, index)
        found = {layer: get(nn_model, layer)[where] for layer in sorted(set(numbers))}
        return torch.stack([found[layer] for layer in numbers])

    if tracer is not None:
        return collect(_mask_of_run(tracer) if prompt is None else mask_of(prompt))
    with nn_model.trace(prompt):
        return collect(mask_of(prompt)).cpu()


@torch.no_grad()
def collect_token_activations_batched(
    nn_model: StandardizedTransformer,
    prompts: str | Sequence[str],
    batch_size: int,
    layers: int | Sequence[int] | None = None,
    get_activations: GetActivations | None = None,
    remote: bool = False,
    idx: int | None = None,
    tqdm: Callable[..., Any] | None = None,
    use_session: bool = True,
) -> torch.Tensor:
    """``get_token_activations`` of many prompts, `batch_size` in a run.

    Args:
        tqdm: what shows progress, called with the iterable of batches; None shows none.
        use_session: accepted for compatibility: it concerns remote runs.

    Returns:
        [layers, prompts, ...] on the CPU, in the model's dtype.

    Raises:
        BadOption: batch_size below 1, no prompts, and as ``get_token_activations``.
    """
    check_remote(remote)
    prompts = [prompts] if isinstance(prompts, str) else prompts
    starts: Any = batch_starts(len(prompts), batch_size)
    if tqdm is not None:
        starts = tqdm(starts)
    parts = [
        get_token_activations(nn_model, prompts[i : i + batch_size], layers, get_activations, idx=idx) for i in starts
    ]
    return torch.cat(parts, dim=1)


def batch_starts(count: int, batch_size: int) -> range:
    """Where each batch begins. Raises BadOption for no prompts or a batch below 1."""
    if batch_size < 1:
        raise BadOption(f"batch_size={batch_size} is below 1.")
    if count == 0:
        raise BadOption("there are no prompts.")
    return range(0, count, batch_size)


@torch.no_grad()
def compute_next_token_probs(
    nn_model: StandardizedTransformer, prompt: PromptLike, remote: bool = False
) -> torch.Tensor:
    """The next-token distribution after each prompt: [prompts, vocab_size], float32, on the CPU."""
    check_remote(remote)
    with nn_model.trace(prompt):
        return nn_model.next_token_probs.save().cpu()
