"""Edits for every value and port, the two ways of writing them, and what a trace gives after them."""

import functools

import torch

from conftest import Checkpoint
from helpers import differences, prompt, read, saved, write

ALL = slice(None)
CHANGE = 1e-3  # what an edit must move a logit by, lest rounding alone is taken for its effect


def at(index, function):
    """A tensor with `function` applied to one part of it."""

    def edit(tensor):
        tensor = tensor.clone()
        tensor[index] = function(tensor[index])
        return tensor

    return edit


def scale(by):
    return lambda tensor: tensor * by


def fill(with_):
    return lambda tensor: torch.full_like(tensor, with_)


def steer(tensor):
    generator = torch.Generator().manual_seed(11)
    return tensor + torch.randn(tensor.shape[-1:], generator=generator).to(tensor.dtype) * 2.0


def even_pattern(pattern):
    """The first head looks evenly at what it may see."""
    pattern = pattern.clone()
    seen = (pattern[:, 0] > 0).to(pattern.dtype)
    pattern[:, 0] = seen / seen.sum(-1, keepdim=True)
    return pattern


def ban_first(scores):
    """No query but the first attends to the first position."""
    return at((..., slice(1, None), 0), fill(torch.finfo(scores.dtype).min))(scores)


def other_integers(tensor):
    """Others that every vocabulary and every mixture has."""
    return (tensor + 1) % 4


def turn(tensor):
    """A norm of a rescaled stream is nearly the same norm, so that what reaches it alone must turn it."""
    return at((..., slice(0, 3)), scale(-2.0) if tensor.is_floating_point() else other_integers)(tensor)


MODEL_EDITS = {
    "input_ids": at((ALL, 3), fill(7)),
    "attention_mask": at((ALL, 3), fill(0)),
    "token_embeddings": at((ALL, 5), scale(-1.0)),
    "final_norm_output": scale(0.5),
    "lm_head_output": at((ALL, ALL, 7), scale(3.0)),
    "logits": scale(0.5),
}
BLOCK_EDITS = {
    "layer_input": steer,
    "attention_norm_output": at((ALL, 3), fill(0)),
    "self_attn.attention_queries": at((ALL, 0), scale(-1.0)),
    "self_attn.attention_keys": at((ALL, 0), fill(0)),
    "self_attn.attention_values": at((ALL, 0, 4), scale(3.0)),
    "self_attn.attention_scores": ban_first,
    "self_attn.attention_probabilities": even_pattern,
    "self_attn.attention_head_outputs": at((ALL, ALL, 0), fill(0)),
    "self_attn.attention_premix": at((ALL, ALL, 0), fill(0)),
    "self_attn.attention_output": fill(0),
    "layer_mid": scale(-1.0),
    "mlp_norm_output": steer,
    "mlp_input": at((ALL, 2), scale(0.5)),
    "mlp.mlp_activation": at((..., slice(0, 3)), scale(2.0)),
    "mlp.mlp_neurons": at((..., slice(0, 3)), fill(0)),
    "mlp.shared_expert_output": scale(-1.0),
    "mlp.router_logits": steer,
    "mlp.expert_weights": at((..., 0), fill(0)),
    "mlp.expert_indices": other_integers,
    "mlp.expert_outputs": at((..., 0, slice(0, 3)), scale(-2.0)),
    "mlp.routed_output": steer,
    "mlp.mlp_output": steer,
    "per_layer_output": steer,
    "layer_output": at((ALL, -1), steer),
}
DERIVED = "next_token_probs"


def inside(name: str) -> tuple[int | None, str]:
    """The block a name belongs to, and its name in there."""
    if not name.startswith("layers."):
        return None, name
    _, block, rest = name.split(".", 2)
    return int(block), rest


def value_edits(model, blocks=None) -> dict:
    """An edit for every value that can be written, of all blocks or of these: a value without one is a KeyError."""
    edits = {}
    for name in model.value_names():
        block, value = inside(name)
        if name != DERIVED and (blocks is None or block is None or block in blocks):
            edits[name] = (MODEL_EDITS if block is None else BLOCK_EDITS)[value]
    return edits


def blocks_of_each_kind(config) -> set[int]:
    """The last block of each kind of attention, with keys of its own (on Gemma 4 those that lend) and with borrowed ones."""
    blocks = config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or [""] * blocks
    borrows = blocks - (getattr(config, "num_kv_shared_layers", None) or 0)
    return set({(kinds[i], i >= borrows): i for i in range(blocks)}.values())


def borrowers(config) -> dict[int, list[int]]:
    """The blocks that attend with another one's keys and values, by that one."""
    modes = getattr(config, "kv_sharing_modes", [])
    borrowing = [i for i, mode in enumerate(modes) if mode == "reuse"]
    of_kind = {config.layer_types[i]: i for i, mode in enumerate(modes) if mode == "store"}
    lent = {i: [j for j in borrowing if config.layer_types[j] == kind] for kind, i in of_kind.items()}
    return {lender: blocks for lender, blocks in lent.items() if blocks}


# ------------------------------------------------------------------------------------------------ ways of writing


def by_assignment(edit, member=0):
    """The new value, whatever the old one is made of."""

    def apply(value):
        if not isinstance(value, tuple):
            return edit(value)
        return (*value[:member], edit(value[member]), *value[member + 1 :])

    return apply


def in_place(edit, member=0):
    def apply(value):
        tensor = value[member] if isinstance(value, tuple) else value
        tensor.copy_(edit(tensor))

    return apply


WAYS = {"assigned": by_assignment, "in place": in_place}


# ------------------------------------------------------------------------------------------------ comparing


def edited(model, ids, edits: dict, names=("logits",), mask=None) -> dict:
    """What a trace reads behind these edits. An edit returns what is assigned, or None when it wrote in place."""
    with model.trace(prompt(ids, mask)) as tracer:
        for name, edit in edits.items():
            new = edit(read(model, tracer, name))
            if new is not None:
                write(model, tracer, name, new)
        values = {name: saved(read(model, tracer, name)) for name in names}
    return values


def ids_of(checkpoint: Checkpoint) -> torch.Tensor:
    return checkpoint.ids(14, seed=3)


@functools.cache
def clean(checkpoint: Checkpoint) -> dict:
    return checkpoint.reference().capture(ids_of(checkpoint))


def assert_shows(logits: torch.Tensor, without: torch.Tensor, what):
    change = (logits - without).abs().max()
    assert change > CHANGE, f"{what} moves the logits by {change:.2g} only"


def check(checkpoint: Checkpoint, edits: dict, names=("logits",), shows=True) -> dict:
    """These values behind the edits, which must be the reference's bit for bit."""
    expected = checkpoint.reference().capture(ids_of(checkpoint), edits=edits)
    if shows:
        assert_shows(expected["logits"], clean(checkpoint)["logits"], list(edits))
    found = edited(checkpoint.model(), ids_of(checkpoint), edits, names)
    lines = differences(found, {name: expected[name] for name in names})
    assert not lines, f"after {list(edits)}: {lines[0]}"
    return found
