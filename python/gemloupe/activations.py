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


_TOKENS_OF_A_RUN = 32  # what a run costs beyond its tokens, in tokens
_SORTED_TOGETHER = 64  # batches whose prompts are sorted by length


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

    The run ends at the last layer that is asked for. Prompts of unlike lengths take several, unless `get_activations` or `tracer` is given.

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
    parts = few_paddings(prompt) if get_activations is None else [(list(range(len(prompt.ids))), prompt)]
    if len(parts) > 1:
        token_columns(mask_of(prompt), index)  # refused by the numbers that the caller knows
    found = []
    for _, part in parts:
        with nn_model.trace(part):
            found.append(collect(mask_of(part)).cpu())
    return _in_order(found, [rows for rows, _ in parts])


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
    """``get_token_activations`` of many prompts, at most `batch_size` in a run, those of like lengths together.

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
    parts: Any = []
    for start in batch_starts(len(prompts), _SORTED_TOGETHER * batch_size):
        some = nn_model._prompt(prompts[start : start + _SORTED_TOGETHER * batch_size])
        parts += [([start + row for row in rows], part) for rows, part in few_paddings(some, batch_size)]
    runs = parts if tqdm is None else tqdm(parts)
    found = [get_token_activations(nn_model, part, layers, get_activations, idx=idx) for _, part in runs]
    return _in_order(found, [rows for rows, _ in parts])


def few_paddings(prompt: _core.Prompt, most: int | None = None) -> list[tuple[list[int], _core.Prompt]]:
    """A batch in parts of like lengths, longest first, each with its rows' numbers: short prompts are not padded to long ones.

    Args:
        most: rows that a part has at most.
    """
    lengths = _lengths(prompt)
    rows = range(len(lengths))
    parts: list[list[int]] = []
    padding = 0
    for row in sorted(rows, key=lambda row: -lengths[row]):
        waste = lengths[parts[-1][0]] - lengths[row] if parts else 0
        if not parts or len(parts[-1]) == most or padding + waste > _TOKENS_OF_A_RUN:
            parts.append([])
            padding = waste = 0
        parts[-1].append(row)
        padding += waste
    if len(parts) == 1:
        return [(list(rows), prompt)]
    return [(sorted(part), _of_rows(prompt, sorted(part), lengths[part[0]])) for part in parts]


def _lengths(prompt: _core.Prompt) -> list[int]:
    """Each row's tokens without the padding; of anything but padding on the left, the whole width."""
    mask, width = mask_of(prompt) != 0, prompt.ids.shape[-1]
    if prompt.ids.ndim != 2 or mask.shape != prompt.ids.shape or prompt.position_ids is not None:
        return [width] * len(prompt.ids)  # whatever is wrong with it, a run says
    counts, on_the_left = mask.sum(1), (mask.int().diff(dim=1) >= 0).all(1)
    return torch.where(on_the_left & (counts > 0), counts, width).tolist()


def _of_rows(prompt: _core.Prompt, rows: list[int], width: int) -> _core.Prompt:
    positions = None if prompt.position_ids is None else prompt.position_ids[rows]
    return _core.Prompt(prompt.ids[rows, -width:], mask_of(prompt)[rows, -width:], positions)


def _in_order(found: list[torch.Tensor], rows: list[list[int]]) -> torch.Tensor:
    """Parts [layers, rows, ...] as one, with the rows where they belong."""
    order = torch.tensor([row for part in rows for row in part])
    return torch.cat(found, dim=1)[:, order.argsort()]


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
