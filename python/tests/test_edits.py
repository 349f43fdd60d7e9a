"""In every text family an edit of any value or port has the effect that it has in the reference, bit for bit."""

import functools

import pytest
import torch

from conftest import Checkpoint
from edits import (
    WAYS,
    assert_shows,
    at,
    ban_first,
    blocks_of_each_kind,
    borrowers,
    by_assignment,
    check,
    clean,
    edited,
    fill,
    ids_of,
    in_place,
    inside,
    scale,
    steer,
    turn,
    value_edits,
)
from helpers import as_exact, assert_all_equal, saved
from reference.bits import assert_equal_bits
from reference.capture import real_rows

BOUND = 1e-4  # of the default attention against eager, in float32
TURNED_MEMBER = {"router.output": 1}  # its first, the probabilities of all experts, nobody reads
SEVERAL = {
    "self_attn.k_proj.output": by_assignment(steer),
    "self_attn.attention_scores": by_assignment(ban_first),
    "mlp.expert_weights": in_place(at((..., 0), fill(0))),
    "mlp.mlp_output": in_place(scale(0.5)),
    "per_layer_output": by_assignment(scale(-1.0)),
}


def some_blocks(checkpoint: Checkpoint) -> set[int]:
    return blocks_of_each_kind(checkpoint.reference().config)


def edits_of(checkpoint: Checkpoint) -> dict:
    """Every block's in float32, a sample's in bfloat16."""
    return value_edits(checkpoint.model(), None if checkpoint.dtype == "float32" else some_blocks(checkpoint))


@functools.cache
def logits_after_each(checkpoint: Checkpoint) -> dict:
    """The reference's logits after each edit of a value: there both ways of writing it are one."""
    logits = {}
    for name, edit in edits_of(checkpoint).items():
        logits[name] = checkpoint.reference().capture(ids_of(checkpoint), edits={name: edit})["logits"]
        assert_shows(logits[name], clean(checkpoint)["logits"], name)
    return logits


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
def test_every_value(every32, dtype, way):
    checkpoint = Checkpoint(every32.zoo, every32.name, dtype)
    model, ids = checkpoint.model(), ids_of(checkpoint)
    found = {name: edited(model, ids, {name: WAYS[way](edit)})["logits"] for name, edit in edits_of(checkpoint).items()}
    assert_all_equal(found, logits_after_each(checkpoint))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("port", ["input", "output"])
def test_every_port(every32, port, way):
    """In place a tensor changes for all who still read it; an assigned input reaches its module alone."""
    blocks = {None, *some_blocks(every32)}
    for name in clean(every32):
        block, module = inside(name)
        if name.endswith(f".{port}") and block in blocks:
            check(every32, {name: WAYS[way](turn, TURNED_MEMBER.get(module, 0))})


def test_every_value_under_the_default(every32):
    ids, found, exact = ids_of(every32), {}, {}
    for name, edit in edits_of(every32).items():
        found[name] = edited(every32.model(None), ids, {name: in_place(edit)})["logits"]
        exact[name] = edited(every32.exact(), ids, {name: in_place(edit)})["logits"]
    expected = logits_after_each(every32)
    worst = max((expected[name].double() - exact[name]).abs().max().item() for name in exact)
    assert_all_equal(found, expected, as_exact(exact, max(BOUND, 4 * worst)))


def test_several_edits_in_one_run(every32):
    check(every32, {name: SEVERAL[inside(name)[1]] for name in clean(every32) if inside(name)[1] in SEVERAL})


def test_edits_of_a_padded_batch(every32):
    ids, mask = every32.padded()
    model, found, expected = every32.model(), {}, {}
    for name, edit in value_edits(model, [model.num_layers // 2]).items():
        logits = every32.reference().capture(ids, mask, {name: edit})["logits"]
        expected[name] = real_rows("logits", logits, mask)
        found[name] = real_rows("logits", edited(model, ids, {name: in_place(edit)}, mask=mask)["logits"], mask)
    assert_all_equal(found, expected)


@pytest.mark.parametrize("keyword", ["attention_mask", "position_embeddings"])
def test_assigned_inputs(every32, keyword):
    """Another mask or another rotation for one block's attention."""

    def edit(inputs):
        args, kwargs = inputs
        value = kwargs[keyword]
        new = torch.zeros_like(value) if keyword == "attention_mask" else tuple(tensor.flip(1) for tensor in value)
        return args, {**kwargs, keyword: new}

    sees_all = getattr(every32.reference().config, "use_bidirectional_attention", None) in (True, "all")
    check(every32, {"layers.0.self_attn.inputs": edit}, shows=not (sees_all and keyword == "attention_mask"))


# ------------------------------------------------------------------------------------------------ blocks left out


def test_blocks_left_out(every32):
    """Each block alone, but for those that lend, and the last ones together: what enters goes on, or another stream."""
    reference, model, ids = every32.reference(), every32.model(), ids_of(every32)
    blocks, lenders = model.num_layers, borrowers(reference.config)
    spans = [(block, block) for block in range(blocks) if block not in lenders]
    spans.append((max(lenders, default=blocks // 2 - 1) + 1, blocks - 1))  # on Gemma 4 all that borrow
    spans += [(min(lenders), blocks - 1)] if lenders else []  # those that lend as well: nobody is left to read
    another = turn(clean(every32)["layers.0.layer_output"])
    edits = {"token_embeddings": turn}
    whole = reference.capture(ids, edits=edits)["logits"]
    for first, last in spans:
        for stream in (None, another):
            entering = {} if stream is None else {f"layers.{first}.layer_input": lambda _: another}
            left_out = range(first, last + 1)
            expected = reference.capture(ids, edits=edits | entering, skip=left_out)["logits"]
            assert_shows(expected, whole, left_out)
            with model.trace(ids):
                model.token_embeddings = turn(model.token_embeddings)
                model.skip_layers(first, last, stream)
                found = saved(model.logits)
            assert_equal_bits(found, expected, f"logits without {left_out}")
