"""Direct logit attribution: a logit as the sum of what each head, MLP and the embedding put into the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .activations import at_token, mask_of
from .errors import BadOption

if TYPE_CHECKING:
    from .model import PromptLike, StandardizedTransformer


@dataclass(frozen=True)
class LogitAttribution:
    """The terms of some tokens' logits at one position; float64, on the CPU.

    Attributes:
        tokens: the ids, [tokens].
        embedding: [batch, tokens], what the token embeddings put in.
        heads: [batch, layers, heads, tokens]; zero for a head that a layer does not have.
        attention_bias: [batch, layers, tokens], of the output projection; zero where it has none.
        mlps: [batch, layers, tokens].
        per_layer: [batch, layers, tokens], of Gemma 4's per-layer embeddings; zero where there are none.
    """

    tokens: torch.Tensor
    embedding: torch.Tensor
    heads: torch.Tensor
    attention_bias: torch.Tensor
    mlps: torch.Tensor
    per_layer: torch.Tensor

    @property
    def attentions(self) -> torch.Tensor:
        """What each layer's attention puts in: its heads and the bias, [batch, layers, tokens]."""
        return self.heads.sum(2) + self.attention_bias

    def total(self) -> torch.Tensor:
        """The sum of all terms, [batch, tokens]: the logits."""
        return self.embedding + (self.attentions + self.mlps + self.per_layer).sum(1)


@torch.no_grad()
def direct_logit_attribution(
    model: StandardizedTransformer,
    prompt: PromptLike,
    tokens: int | str | Sequence[int | str] | torch.Tensor,
    *,
    idx: int = -1,
    softcap: bool = False,
) -> LogitAttribution:
    """What each part of the model adds to some tokens' logits directly, that is but for its effect on later parts.

    The stream before the final norm is a sum; with each norm's scale frozen at what it was in this run, the logit is linear in
    its terms. The terms sum to `lm_head_output` at that position, in float32 within 1e-4 and in bfloat16 but for what the run
    rounded; with `softcap` to `logits`.

    Args:
        prompt: as ``model.trace`` takes it.
        tokens: ids, or texts that are one token each (mind the space: ``" Paris"``).
        idx: at which token of each prompt: 0 is <bos>, -1 the last.
        softcap: scale all terms by what the model's softcap made of the logit in this run; nothing without a softcap.

    Raises:
        BadOption: a text that is not one token, an id outside the vocabulary, no such token in a prompt.
    """
    ids = token_ids(model, tokens)
    run = _Run(model, prompt, idx)
    readout = run.readout(ids)  # [batch, tokens, hidden_size]
    scales = _scales_from(model)
    heads, biases, mlps, extras = [], [], [], []
    for layer in range(model.num_layers):
        direction = readout * scales[layer]
        split, bias = run.heads(layer)
        heads.append(torch.einsum("bnd,btd->bnt", split, direction))
        biases.append(torch.einsum("bd,btd->bt", bias, direction))
        mlps.append(torch.einsum("bd,btd->bt", run.mlps[layer], direction))
        extras.append(torch.einsum("bd,btd->bt", run.extras[layer], direction))
    found = LogitAttribution(
        tokens=ids.cpu(),
        embedding=torch.einsum("bd,btd->bt", run.entering, readout * scales[0]).cpu(),
        heads=torch.nn.utils.rnn.pad_sequence([h.transpose(0, 1) for h in heads], batch_first=True)
        .permute(2, 0, 1, 3)
        .cpu(),
        attention_bias=torch.stack(biases, dim=1).cpu(),
        mlps=torch.stack(mlps, dim=1).cpu(),
        per_layer=torch.stack(extras, dim=1).cpu(),
    )
    return _capped(found, run.capped(ids).cpu()) if softcap else found


def _capped(found: LogitAttribution, logits: torch.Tensor) -> LogitAttribution:
    total = found.total()
    ratio = torch.where(total == 0, 1.0, logits / total)  # [batch, tokens]; a cap is the identity near 0
    return LogitAttribution(
        tokens=found.tokens,
        embedding=found.embedding * ratio,
        heads=found.heads * ratio[:, None, None],
        attention_bias=found.attention_bias * ratio[:, None],
        mlps=found.mlps * ratio[:, None],
        per_layer=found.per_layer * ratio[:, None],
    )


def token_ids(model: StandardizedTransformer, tokens: int | str | Sequence[int | str] | torch.Tensor) -> torch.Tensor:
    """Ids [tokens], int64, of ids or texts. Raises BadOption for a text that is not one token and an id that is not there."""
    if isinstance(tokens, torch.Tensor):
        tokens = tokens.reshape(-1).tolist()
    listed = [tokens] if isinstance(tokens, (int, str)) else list(tokens)
    ids = []
    for token in listed:
        found = model.tokenizer.encode(token, add_special_tokens=False) if isinstance(token, str) else [int(token)]
        if len(found) != 1:
            raise BadOption(
                f"{token!r} is {len(found)} tokens, not one: {model.tokenizer.convert_ids_to_tokens(found)}."
            )
        if not 0 <= found[0] < model.vocab_size:
            raise BadOption(f"token {found[0]} is outside the vocabulary, 0 to {model.vocab_size - 1}.")
        ids += found
    if not ids:
        raise BadOption("tokens is empty: name at least one.")
    return torch.tensor(ids, dtype=torch.long)


def _scales_from(model: StandardizedTransformer) -> list[float]:
    """What a term of each block is multiplied by on its way to the final norm: the layer scalars from its block on (Gemma 4)."""
    scalars = [float(getattr(layer._module, "layer_scalar", 1.0)) for layer in model.layers]
    products, product = [], 1.0
    for scalar in reversed(scalars):
        product *= scalar
        products.append(product)
    return products[::-1]


class _Run:
    """What one run of a prompt put into the stream at one token; all [batch, hidden_size] in float64 unless said otherwise."""

    def __init__(self, model: StandardizedTransformer, prompt: PromptLike, idx: int) -> None:
        self._model = model
        prompt = model._prompt(prompt)
        where = at_token(mask_of(prompt), idx)

        def take(value: Any) -> torch.Tensor:
            return value[where].double()

        self.attentions: list[
            tuple[torch.Tensor, ...]
        ] = []  # premix [batch, heads, head_dim], o_proj's output, what is added
        self.mlps: list[torch.Tensor] = []
        self.extras: list[torch.Tensor] = []
        with model.trace(prompt):
            self.entering = take(model.layers[0].layer_input)
            for layer in model.layers:
                attention = layer.self_attn
                premix, projected = take(attention.attention_premix), take(attention.o_proj.output)
                self.attentions.append((premix, projected, take(attention.attention_output)))
                self.mlps.append(take(layer.mlp.mlp_output))
                per_layer = "per_layer_output" in layer._rows
                self.extras.append(take(layer.per_layer_output) if per_layer else torch.zeros_like(self.entering))
                self._leaving = layer.layer_output[where]
            self._normed = take(model.final_norm_output)

    def readout(self, ids: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, hidden_size]: the head's rows of `ids` behind the frozen final norm."""
        scale = _frozen_norm(self._leaving.double(), self._normed, self._model.norm)
        return scale[:, None] * self._model.lm_head._weight_rows("weight", ids).double()

    def capped(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits the model returns, [batch, tokens]."""
        return self._model.project_on_vocab(self._leaving)[:, ids].double()

    def heads(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What each head adds to the stream [batch, heads, hidden_size], and the output projection's bias."""
        premix, projected, added = self.attentions[layer]
        block = self._model.layers[layer]
        weights = dict(block.self_attn.o_proj._module.named_parameters())
        weight = weights["weight"].double().unflatten(1, premix.shape[1:])  # [hidden_size, heads, head_dim]
        norm = getattr(block, "post_attention_layernorm", None)
        scale = _frozen_norm(projected, added, norm)
        split = torch.einsum("bnd,hnd->bnh", premix, weight) * scale[:, None]
        bias = weights["bias"].double() if "bias" in weights else torch.zeros_like(scale)
        return split, bias * scale


def _frozen_norm(before: torch.Tensor, after: torch.Tensor, norm: Any) -> torch.Tensor:
    """What the step from `before` to `after` multiplied each component by, [batch, hidden_size].

    The step is an RMS norm whose gain is 1 + weight (Gemma 1 to 3) or weight (Gemma 4), or, of Gemma 1's attention, none at all:
    post_attention_layernorm is then the norm before the MLP. It is that of the three which gives `after`.
    """
    candidates = [torch.ones_like(before)]
    if norm is not None:
        weight = norm._module.weight.double()
        inverse = (before.square().mean(-1, keepdim=True) + norm._module.eps).rsqrt()
        candidates += [inverse * (1 + weight), inverse * weight]
    return min(candidates, key=lambda scale: float((before * scale - after).abs().max()))
