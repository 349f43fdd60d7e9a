"""What an edit of a run reaches, and what it leaves alone, on a checkpoint of Gemma 3; every value of every family is edited beside."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from conftest import token_ids
from edits import scale
from helpers import saved
from reference.bits import assert_equal_bits


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
