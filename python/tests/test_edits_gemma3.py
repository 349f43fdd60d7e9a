"""An edit of any value or port has the effect that the same edit has in the reference, bit for bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from conftest import Checkpoint, token_ids
from helpers import prompt, read, saved, write
from reference.bits import assert_equal_bits
from reference.capture import real_rows

LOW = torch.finfo(torch.float32).min


def at(index, function):
    """A tensor with `function` applied to one part of it."""

    def edit(tensor):
        tensor = tensor.clone()
        tensor[index] = function(tensor[index])
        return tensor

    return edit


def scale(by):
    return lambda tensor: tensor * by


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
    scores = scores.clone()
    scores[..., 1:, 0] = LOW
    return scores


ALL = slice(None)
MODEL_EDITS = {
    "token_embeddings": at((ALL, 5), scale(-1.0)),
    "final_norm_output": scale(0.5),
    "lm_head_output": at((ALL, ALL, 7), scale(3.0)),
    "logits": scale(0.5),
}
BLOCK_EDITS = {
    "layer_input": steer,
    "attention_norm_output": at((ALL, 3), scale(0.0)),
    "self_attn.attention_queries": at((ALL, 0), scale(-1.0)),
    "self_attn.attention_keys": at((ALL, 0), scale(0.0)),
    "self_attn.attention_values": at((ALL, 0, 4), scale(3.0)),
    "self_attn.attention_scores": ban_first,
    "self_attn.attention_probabilities": even_pattern,
    "self_attn.attention_head_outputs": at((ALL, ALL, 0), scale(0.0)),
    "self_attn.attention_premix": at((ALL, ALL, 0), scale(0.0)),
    "self_attn.attention_output": scale(0.0),
    "layer_mid": scale(-1.0),
    "mlp_norm_output": scale(0.9),
    "mlp_input": at((ALL, 2), scale(0.5)),
    "mlp.mlp_activation": at((..., slice(0, 3)), scale(2.0)),
    "mlp.mlp_neurons": at((..., slice(0, 3)), scale(0.0)),
    "mlp.mlp_output": steer,
    "layer_output": at((ALL, -1), steer),
}
MODULES = (
    "input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.q_norm self_attn.k_norm"
    " self_attn.o_proj self_attn post_attention_layernorm pre_feedforward_layernorm mlp.gate_proj mlp.act_fn"
    " mlp.up_proj mlp.down_proj mlp post_feedforward_layernorm"
).split()


def edits_of(blocks: int):
    yield from MODEL_EDITS.items()
    for name, edit in BLOCK_EDITS.items():
        for block in {0, blocks // 2}:
            yield f"layers.{block}.{name}", edit


def by_assignment(edit):
    """The new value, whatever the old one is made of."""
    return lambda value: (edit(value[0]), *value[1:]) if isinstance(value, tuple) else edit(value)


def in_place(edit):
    def apply(value):
        tensor = value[0] if isinstance(value, tuple) else value
        tensor.copy_(edit(tensor))

    return apply


WAYS = {"assigned": by_assignment, "in place": in_place}


def edited_logits(model, ids, edits: dict, mask=None):
    """What a trace with these edits gives. An edit returns what is assigned, or None when it wrote in place."""
    with model.trace(prompt(ids, mask)) as tracer:
        for name, edit in edits.items():
            new = edit(read(model, tracer, name))
            if new is not None:
                write(model, tracer, name, new)
        logits = model.logits.save()
    return logits


def check(checkpoint, edits: dict, changes=True):
    ids = checkpoint.ids(14, seed=3)
    reference, model = checkpoint.reference(), checkpoint.model()
    expected = reference.capture(ids, edits=edits)["logits"]
    if changes:
        assert not torch.equal(expected, reference.logits(ids)), f"{list(edits)}: this edit does nothing"
    assert_equal_bits(edited_logits(model, ids, edits), expected, f"logits after {list(edits)}")


@pytest.mark.parametrize("way", WAYS)
def test_every_value(checkpoint32, way):
    for name, edit in edits_of(checkpoint32.reference().config.num_hidden_layers):
        check(checkpoint32, {name: WAYS[way](edit)})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("port", ["input", "output"])
def test_every_port(checkpoint32, port, way):
    """In place a tensor changes for all who still read it; an assigned input reaches its module alone."""
    block = checkpoint32.reference().config.num_hidden_layers // 2
    paths = [f"layers.{block}", *(f"layers.{block}.{module}" for module in MODULES), "norm", "lm_head"]
    for path in [*paths, *(["embed_tokens"] if port == "output" else [])]:
        # A norm of a rescaled stream is nearly the same norm, so that what reaches it alone must turn it.
        check(checkpoint32, {f"{path}.{port}": WAYS[way](at((..., slice(0, 3)), scale(-2.0)))})


def test_bfloat16_edits(zoo):
    checkpoint = Checkpoint(zoo, "mqa", "bfloat16")
    for name, edit in edits_of(8):
        if "scores" not in name:  # LOW is float32's
            check(checkpoint, {name: in_place(edit)})


def test_an_assigned_query_input_leaves_keys_and_values(zoo):
    model, ids = zoo.model("mqa"), token_ids(14, 400)
    projections = [f"layers.2.self_attn.{name}_proj.output" for name in "qkv"]
    clean = zoo.reference("mqa").capture(ids)
    for way, reached in (("assigned", 1), ("in place", 3)):
        with model.trace(ids) as tracer:
            entering = model.layers[2].self_attn.q_proj.input
            if way == "assigned":
                model.layers[2].self_attn.q_proj.input = entering * 2
            else:
                entering *= 2
            found = [tracer.read(name).save() for name in projections]
        changed = [not torch.equal(a, clean[name]) for a, name in zip(found, projections, strict=True)]
        assert changed == [True] * reached + [False] * (3 - reached), way


def test_layer_mid_is_the_stream_and_its_norm_s_input_is_not(zoo):
    """The standard value moves the residual by either way of writing, the native port only in place."""
    model, ids = zoo.model("mqa"), token_ids(14, 400)
    clean = zoo.reference("mqa").capture(ids)
    mid, mlp_output = clean["layers.1.layer_mid"], clean["layers.1.mlp.mlp_output"]

    def layer_output(write_stream):
        with model.trace(ids):
            write_stream(model.layers[1])
            # The norm is given its clean output again, so that only the residual's part is seen.
            model.layers[1].mlp_norm_output = clean["layers.1.mlp_norm_output"]
            out = model.layers[1].layer_output.save()
        return out

    def assign(block):
        block.layer_mid = block.layer_mid * 3

    def edit(block):
        block.layer_mid[:] *= 3

    def assign_port(block):
        block.pre_feedforward_layernorm.input = block.pre_feedforward_layernorm.input * 3

    def edit_port(block):
        block.pre_feedforward_layernorm.input[:] *= 3

    for function in (assign, edit, edit_port):
        assert_equal_bits(layer_output(function), mid * 3 + mlp_output, function.__name__)
    assert_equal_bits(layer_output(assign_port), clean["layers.1.layer_output"], "assign_port")


@pytest.mark.parametrize("keyword", ["attention_mask", "position_embeddings"])
def test_assigned_inputs(checkpoint32, keyword):
    """Another mask or another rotation for one block's attention."""

    def edit(inputs):
        args, kwargs = inputs
        value = kwargs[keyword]
        new = torch.zeros_like(value) if keyword == "attention_mask" else tuple(tensor.flip(1) for tensor in value)
        return args, {**kwargs, keyword: new}

    bidirectional = checkpoint32.reference().config.use_bidirectional_attention
    check(checkpoint32, {"layers.0.self_attn.inputs": edit}, changes=not bidirectional)


def test_input_ids(checkpoint32):
    """The embedding looks up what the ids are when it runs."""
    ids = checkpoint32.ids(14, seed=3)
    other = ids.clone()
    other[:, 3] = 7
    expected = checkpoint32.reference().logits(other)
    for edit in (at((ALL, 3), lambda row: torch.full_like(row, 7)),):
        for way in WAYS.values():
            found = edited_logits(checkpoint32.model(), ids, {"input_ids": way(edit)})
            assert_equal_bits(found, expected, "logits")


def test_several_edits_in_one_run(checkpoint32):
    blocks = checkpoint32.reference().config.num_hidden_layers
    edits = {f"layers.{i}.mlp.mlp_output": in_place(scale(0.5)) for i in range(blocks)}
    edits |= {f"layers.{i}.self_attn.attention_scores": by_assignment(ban_first) for i in range(blocks)}
    edits |= {f"layers.{i}.self_attn.k_proj.output": by_assignment(scale(1.5)) for i in range(blocks)}
    order = list(checkpoint32.reference().capture(checkpoint32.ids()))
    check(checkpoint32, dict(sorted(edits.items(), key=lambda item: order.index(item[0]))))


def test_edits_of_a_padded_batch(checkpoint32):
    ids, mask = checkpoint32.padded()
    reference, model = checkpoint32.reference(), checkpoint32.model()
    for name, edit in edits_of(reference.config.num_hidden_layers):
        expected = reference.capture(ids, mask, {name: in_place(edit)})["logits"]
        found = edited_logits(model, ids, {name: in_place(edit)}, mask)
        assert_equal_bits(real_rows("logits", found, mask), real_rows("logits", expected, mask), f"logits after {name}")


def test_default_attention_takes_the_same_edits(checkpoint32):
    """An edit inside the attention function makes that block attend step by step."""
    ids = checkpoint32.ids(14, seed=3)
    for name, edit in edits_of(checkpoint32.reference().config.num_hidden_layers):
        expected = checkpoint32.reference().capture(ids, edits={name: in_place(edit)})["logits"]
        found = edited_logits(checkpoint32.model(None), ids, {name: in_place(edit)})
        assert (found - expected).abs().max() < 1e-4, name


def test_what_an_edit_leaves_is_what_later_reads_see(zoo):
    model, ids = zoo.model("mqa"), token_ids(14, 400)
    with model.trace(ids):
        model.layers[1].layer_output[:] *= 2
        after = saved(model.layers[1].layer_output)
        entering = saved(model.layers[2].layer_input)
        native = saved(model.layers[2].input)
    assert_equal_bits(entering, after, "layer_input")
    assert_equal_bits(native, after, "layers[2].input")


@pytest.mark.parametrize("implementation", ["eager", None])
def test_an_assigned_tensor_stays_the_caller_s(zoo, implementation):
    """What is assigned may be a view, an expansion or another value: an edit of it later moves the value alone."""
    model, ids = zoo.model("mqa", "float32", implementation), token_ids(9, 400)

    def edited(make):
        with model.trace(ids):
            mid = model.layers[1].layer_mid
            new = make(mid)
            kept = new.clone()
            model.layers[1].mlp.mlp_output = new
            model.layers[1].mlp.mlp_output[:, 0] += 1
            stream = saved(model.layers[2].layer_input)
            assert torch.equal(new, kept)
        return stream

    everywhere = torch.linspace(-1, 1, 48)
    makers = {
        "another value": lambda mid: mid,
        "an expansion": lambda mid: everywhere.expand(1, 9, 48),
        "a view": lambda mid: torch.cat([mid, mid])[1:],
        "a transposed tensor": lambda mid: mid.transpose(1, 2).contiguous().transpose(1, 2),
        "another dtype": lambda mid: mid.double(),
    }
    for what, make in makers.items():
        alone = edited(lambda mid, make=make: make(mid).float().clone(memory_format=torch.contiguous_format))
        assert_equal_bits(edited(make), alone, what)


def test_traces_of_two_models_inside_one_another(zoo):
    ids = token_ids(9, 400)
    outer, inner = zoo.model("mqa"), zoo.model("mqa", "bfloat16")
    clean = zoo.reference("mqa").capture(ids)
    with outer.trace(ids):
        first = outer.layers[0].layer_output
        with inner.trace(ids):
            kept = saved(outer.layers[0].layer_output)
            other = inner.layers[1].layer_output
            outer.layers[1].layer_output = other
        first[:] = 0
        logits = saved(outer.logits)
    expected = zoo.reference("mqa", "bfloat16").capture(ids)["layers.1.layer_output"].float()
    assert_equal_bits(kept, clean["layers.0.layer_output"], "saved inside")
    wanted = zoo.reference("mqa").capture(ids, edits={"layers.1.layer_output": lambda _: expected})["logits"]
    assert_equal_bits(logits, wanted, "logits")


def test_traces_in_several_threads(zoo):
    model, ids = zoo.model("mqa"), token_ids(9, 400)
    expected = [
        zoo.reference("mqa").capture(ids, edits={"layers.3.layer_output": scale(by)})["logits"] for by in (1, 2)
    ]

    def run(by):
        with model.trace(ids):
            model.layers[3].layer_output[:] *= by
            logits = saved(model.logits)
        return torch.equal(logits, expected[by - 1])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, [1, 2] * 20))
