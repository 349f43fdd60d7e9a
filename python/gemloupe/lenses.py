"""Lenses: what a stream at the last token of a prompt says, read out directly or by the model in another prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from . import _core
from .accessors import layer_numbers
from .activations import (
    at_token,
    batch_starts,
    check_remote,
    collect_token_activations_batched,
    get_token_activations,
    mask_of,
    token_columns,
)
from .errors import BadOption, BadValue
from .targets import TargetPrompt, TargetPromptBatch, repeat_prompt

_READ_OUT_TOGETHER = 64  # streams for which the head is read once; their logits take 64 MB

if TYPE_CHECKING:
    from .model import PromptLike, StandardizedTransformer

Targets: TypeAlias = "TargetPromptBatch | Sequence[TargetPrompt | str] | TargetPrompt | str"


@torch.no_grad()
def logit_lens(
    nn_model: StandardizedTransformer,
    prompts: PromptLike,
    remote: bool = False,
    return_inv_logits: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """What the stream at the last token says after each block, through the model's own final norm, head and softcap.

    Args:
        prompts: as ``model.trace`` takes them.
        remote: False.
        return_inv_logits: also what the negated stream says, whose logits are the negated ones.

    Returns:
        Probabilities [prompts, layers, vocab_size], float32, on the CPU; the last layer's are the model's own. With
        `return_inv_logits` a pair of such.
    """
    streams = get_token_activations(nn_model, prompts, remote=remote).transpose(0, 1)
    said, opposite = [], []
    for some in streams.flatten(0, 1).split(_READ_OUT_TOGETHER):
        logits = nn_model.project_on_vocab(some.to(nn_model.device)).float()
        said.append(logits.softmax(-1).cpu())
        if return_inv_logits:
            opposite.append((-logits).softmax(-1).cpu())
    said, opposite = (torch.cat(rows).unflatten(0, streams.shape[:2]) if rows else None for rows in (said, opposite))
    return (said, opposite) if return_inv_logits else said


def _as_list(prompts: str | Sequence[str]) -> list[str]:
    return [prompts] if isinstance(prompts, str) else list(prompts)


# --------------------------------------------------------------------------------------------------------- patchscopes


@torch.no_grad()
def patchscope_lens(
    nn_model: StandardizedTransformer,
    source_prompts: str | Sequence[str] | None = None,
    target_patch_prompts: Targets | None = None,
    layers: int | Sequence[int] | None = None,
    latents: torch.Tensor | Sequence[torch.Tensor] | None = None,
    remote: bool = False,
) -> torch.Tensor:
    """What the model says after a target prompt in which one token's stream is the source's, at each layer in turn.

    Args:
        source_prompts: whose last tokens' streams are patched in, each at the layer it is from.
        target_patch_prompts: where to: one target for all sources, or one for each; None is ``repeat_prompt()``.
        layers: block numbers, negative ones from the end; None is every block.
        latents: in place of `source_prompts`, the states [layers, sources, hidden_size], one for each entry of `layers`.
        remote: False.

    Returns:
        Next-token probabilities [sources, layers, vocab_size], float32, on the CPU, in the order of `layers`.

    Raises:
        BadOption: both or none of sources and latents, as many targets as not sources, no such block or token.
        BadValue: latents of another shape.
    """
    check_remote(remote)
    numbers = layer_numbers(nn_model, layers)
    if (latents is None) == (source_prompts is None):
        raise BadOption("patchscope_lens takes either source_prompts or latents, one of them.")
    if latents is None:
        latents = get_token_activations(nn_model, _as_list(source_prompts), numbers)
    else:
        latents = _checked_latents(nn_model, latents, len(numbers))
    targets = _targets(target_patch_prompts, latents.shape[1])
    prompt = nn_model._prompt(targets.prompts)
    where = at_token(mask_of(prompt), targets.index_to_patch)
    probs = [
        _patched_probs(nn_model, prompt, layer, where, latent) for layer, latent in zip(numbers, latents, strict=True)
    ]
    return torch.stack(probs, dim=1)


def _checked_latents(
    model: StandardizedTransformer, latents: torch.Tensor | Sequence[torch.Tensor], layers: int
) -> torch.Tensor:
    if not isinstance(latents, torch.Tensor):
        if len({tuple(latent.shape) for latent in latents}) != 1:
            raise BadValue("latents: the layers' states are not as many, or none are given.")
        latents = torch.stack(list(latents))
    if latents.ndim != 3 or latents.shape[0] != layers or latents.shape[2] != model.hidden_size:
        raise BadValue(
            f"latents have the shape {list(latents.shape)}; expected [{layers}, sources, {model.hidden_size}]: one for each of the "
            "layers that are patched."
        )
    return latents


def _targets(targets: Targets | None, sources: int) -> TargetPromptBatch:
    batch = TargetPromptBatch.auto(repeat_prompt() if targets is None else targets, sources)
    if len(batch) != sources:
        raise BadOption(f"there are {len(batch)} targets for {sources} sources: give one for all, or one for each.")
    return batch


def _patch(
    model: StandardizedTransformer, layer: int, where: tuple[torch.Tensor, torch.Tensor], latent: torch.Tensor
) -> None:
    """In a body: the stream leaving `layer` is `latent` [rows, hidden_size] at one token of each row."""
    stream = model.layers_output[layer]
    stream[where] = latent.to(stream)


def _patched_probs(
    model: StandardizedTransformer,
    prompt: _core.Prompt,
    layer: int,
    where: tuple[torch.Tensor, torch.Tensor],
    latent: torch.Tensor,
) -> torch.Tensor:
    with model.trace(prompt):
        _patch(model, layer, where, latent)
        return model.next_token_probs.save().cpu()


@torch.no_grad()
def patchscope_generate(
    nn_model: StandardizedTransformer,
    prompts: str | Sequence[str],
    target_patch_prompt: Targets,
    max_length: int = 50,
    layers: int | Sequence[int] | None = None,
    remote: bool = False,
    max_batch_size: int = 32,
) -> dict[int, torch.Tensor]:
    """Greedy continuations of a target prompt in which one token's stream is the source's, for each layer in turn.

    A stream is patched once, in the pass of the target prompt: later tokens read it in that token's keys and values.

    Args:
        prompts: the sources, whose last tokens' streams are patched in, each at the layer it is from.
        target_patch_prompt: the target, or one for each source; a text is patched at its last token.
        max_length: how many tokens are added at most.
        layers: block numbers, negative ones from the end; None is every block.
        remote: False.
        max_batch_size: how many rows a run has at most.

    Returns:
        For each of `layers`, as it was given, ids [prompts, target + added], int64, on the CPU. A row that ends before the others
        is filled up with the padding token; targets of unlike lengths are padded on the left.

    Raises:
        BadOption: a number below 1, as many targets as not sources, no such block or token; remote.
    """
    check_remote(remote)
    for name, value in (("max_length", max_length), ("max_batch_size", max_batch_size)):
        if value < 1:
            raise BadOption(f"{name}={value} is below 1.")
    sources = _as_list(prompts)
    keys = layer_numbers(nn_model, None) if layers is None else [layers] if isinstance(layers, int) else list(layers)
    numbers = layer_numbers(nn_model, keys)
    latents = collect_token_activations_batched(nn_model, sources, max_batch_size, numbers)
    targets = _targets(target_patch_prompt, len(sources))
    prompt = nn_model._prompt(targets.prompts)
    columns = token_columns(mask_of(prompt), targets.index_to_patch)
    batches = [slice(start, start + max_batch_size) for start in batch_starts(len(sources), max_batch_size)]
    found = {}
    for key, layer, latent in zip(keys, numbers, latents, strict=True):
        parts = [
            _continue(nn_model, _rows(prompt, rows), layer, columns[rows], latent[rows], max_length) for rows in batches
        ]
        width = max(part.shape[1] for part in parts)
        filler = nn_model._core.pad_token
        parts = [torch.nn.functional.pad(part, (0, width - part.shape[1]), value=filler) for part in parts]
        found[int(key)] = torch.cat(parts)
    return found


def _rows(prompt: _core.Prompt, rows: slice) -> _core.Prompt:
    return _core.Prompt(prompt.ids[rows], mask_of(prompt)[rows], None)


def _continue(
    model: StandardizedTransformer,
    prompt: _core.Prompt,
    layer: int,
    columns: torch.Tensor,
    latent: torch.Tensor,
    max_length: int,
) -> torch.Tensor:
    """Ids [rows, target + added]: the prompt's pass is patched, and its keys and values carry the patch on."""
    with model.generation(prompt, max_new_tokens=max_length, do_sample=False) as tracer:
        _patch(model, layer, (torch.arange(len(columns), device=columns.device), columns), latent)
    return tracer.result.cpu()


# ----------------------------------------------------------------------------------------------------------- attention


@torch.no_grad()
def patch_object_attn_lens(
    nn_model: StandardizedTransformer,
    source_prompts: str | Sequence[str],
    target_prompts: str | Sequence[str],
    attn_idx_patch: int,
    num_patches: int = 5,
) -> torch.Tensor:
    """What the model says if the attention finds, at one token of the targets, what it reads at the sources' last tokens.

    For each layer, the normed stream that the attention reads at that token is the source's, in that layer and the following
    ones, `num_patches` in all.

    Args:
        source_prompts: one for all targets, or one for each.
        target_prompts: what is continued.
        attn_idx_patch: which token of a target: 0 is <bos>, -1 the last.
        num_patches: how many layers.

    Returns:
        Next-token probabilities [targets, layers, vocab_size], float32, on the CPU.

    Raises:
        BadOption: as many sources as not targets, num_patches below 1, no such token.
    """
    sources, targets = _as_list(source_prompts), _as_list(target_prompts)
    if len(sources) not in (1, len(targets)):
        raise BadOption(
            f"there are {len(sources)} sources for {len(targets)} targets: give one for all, or one for each."
        )
    if num_patches < 1:
        raise BadOption(f"num_patches={num_patches} is below 1.")
    read = get_token_activations(nn_model, sources, get_activations=lambda model, i: model.attentions_input[i])
    prompt = nn_model._prompt(targets)
    where = at_token(mask_of(prompt), attn_idx_patch)
    probs = []
    for layer in range(nn_model.num_layers):
        with nn_model.trace(prompt):
            for patched in range(layer, min(nn_model.num_layers, layer + num_patches)):
                entering = nn_model.attentions_input[patched]
                entering[where] = read[patched].to(entering)
            probs.append(nn_model.next_token_probs.save().cpu())
    return torch.stack(probs, dim=1)
