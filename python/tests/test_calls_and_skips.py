"""Modules called beside a run, and modules that a run leaves out."""

import pytest
import torch

from conftest import token_ids
from gemloupe.errors import BadValue, CannotCall, CannotSkip, NotInThisRun, OutOfOrder
from helpers import logits_of

FAMILIES = ["mqa", "gemma", "gemma2", "gemma4_e2b", "gemma4_31b", "gemma4_moe"]


def ids_of(model, length=11, seed=3):
    return token_ids(length, model.vocab_size, seed)


@pytest.fixture(params=FAMILIES)
def model(request, zoo):
    return zoo.model(request.param)


def test_a_module_called_is_the_module_run(model):
    ids = ids_of(model)
    with model.trace(ids):
        embeddings = model.embed_tokens.output.save()
        normed = model.layers[1].input_layernorm.output.save()
        attention = model.layers[1].self_attn.output[0].save()
        mlp_input = model.layers[1].mlp.input.save()
        mlp = model.layers[1].mlp.output.save()
        last = model.layers[-1].output.save()
        final = model.norm.output.save()
        logits = model.lm_head.output.save()
    assert torch.equal(model.embed_tokens(ids), embeddings)
    assert torch.equal(model.layers[1].mlp(mlp_input), mlp)
    assert torch.equal(model.layers[1].self_attn(normed)[0], attention)
    assert torch.equal(model.norm(last), final) and torch.equal(model.lm_head(final), logits)
    assert model.norm(last[0, 0]).shape == (model.hidden_size,)


def test_a_call_inside_a_trace_moves_nothing(model):
    ids = ids_of(model)
    clean = logits_of(model, ids)
    with model.trace(ids):
        x = model.layers[0].layer_output.save()
        model.lm_head(model.norm(x))
        model.layers[0].mlp(x)  # of a block that has passed
        logits = model.logits.save()
    assert torch.equal(logits, clean)


def test_attention_at_other_positions(zoo):
    model = zoo.model("mqa")
    x = torch.randn(1, 5, model.hidden_size)
    here = model.layers[0].self_attn(x)[0]
    assert torch.equal(model.layers[0].self_attn(x, position_ids=torch.arange(5))[0], here)
    moved = model.layers[0].self_attn(x, position_ids=torch.arange(5) + 7)[0]
    torch.testing.assert_close(moved, here, atol=1e-4, rtol=1e-4)  # only distances count
    apart = model.layers[0].self_attn(x, position_ids=torch.arange(5) * 3)[0]
    assert (apart - here).abs().max() > 1e-3
    with pytest.raises(BadValue, match="position_ids"):
        model.layers[0].self_attn(x, position_ids=torch.arange(4))


def test_what_cannot_be_called(zoo):
    e2b = zoo.model("gemma4_e2b")
    with pytest.raises(CannotCall, match="self_attn.* reads what '.*' makes"):
        e2b.layers[7].self_attn(torch.randn(1, 3, e2b.hidden_size))
    with pytest.raises(CannotCall, match="a list of blocks"):
        e2b.model.layers(torch.randn(1, 3, e2b.hidden_size))
    with pytest.raises(BadValue, match="does not take a tensor of the shape"):
        e2b.layers[0].mlp(torch.randn(1, 3, e2b.hidden_size + 1))


def test_a_call_records_gradients(zoo):
    model = zoo.model("mqa")
    x = torch.randn(1, 3, model.hidden_size, requires_grad=True)
    model.layers[0].mlp(x).sum().backward()
    assert x.grad.abs().sum() > 0


# ------------------------------------------------------------------------------------------------ skips


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", ["mqa", "gemma", "gemma4_31b", "gemma4_moe"])
def test_a_skipped_block_passes_its_input_on(zoo, name, implementation):
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    with model.trace(ids):
        model.skip_layer(1)
        entering = model.layers[2].layer_input.save()
        skipped = model.logits.save()
    with model.trace(ids):
        x = model.layers[1].layer_input.save()
        model.layers[1].layer_output = x
        assigned = model.logits.save()
    assert torch.equal(entering, x) and torch.equal(skipped, assigned)
    assert not torch.equal(skipped, logits_of(model, ids))


def test_several_layers_with_something_else(zoo):
    model = zoo.model("mqa")
    ids = ids_of(model)
    other = torch.randn(1, ids.shape[1], model.hidden_size)
    with model.trace(ids):
        model.skip_layers(2, 4, other)
        entering = model.layers[5].layer_input.save()
        logits = model.logits.save()
    assert torch.equal(entering, other)
    with model.trace(ids):
        model.layers[4].layer_output = other
        assert torch.equal(model.logits.save(), logits)


def test_a_skipped_submodule(model):
    ids = ids_of(model)
    with model.trace(ids):
        x = model.layers[1].self_attn.input
        model.layers[1].self_attn.skip(torch.zeros_like(x))
        contribution = model.layers[1].self_attn.attention_output.save()
        logits = model.logits.save()
    assert contribution.eq(0).all()
    with model.trace(ids):
        model.layers[1].self_attn.output = (torch.zeros_like(contribution), None)
        assert torch.equal(model.logits.save(), logits)


def test_what_lies_inside_is_not_in_this_run(zoo):
    model = zoo.model("mqa")
    with (
        pytest.raises(NotInThisRun, match="inside 'model.layers.1', which this trace has skipped"),
        model.trace(ids_of(model)),
    ):
        model.skip_layer(1)
        model.layers[1].mlp.mlp_output.save()


def test_a_source_of_borrowed_keys_is_not_skipped(zoo):
    model = zoo.model("gemma4_e2b")
    first = model.num_layers - model.config.num_kv_shared_layers
    source = max(i for i in range(first) if model.config.layer_types[i] == "sliding_attention")
    words = rf"layers\.{source}' cannot be skipped: '.*self_attn' read"
    with pytest.raises(CannotSkip, match=words) as caught, model.trace(ids_of(model)):
        model.skip_layer(source)
    assert isinstance(caught.value, KeyError)


def test_a_skip_that_comes_too_late_or_does_not_fit(zoo):
    model = zoo.model("mqa")
    with pytest.raises(OutOfOrder, match="lies behind its beginning"), model.trace(ids_of(model)):
        stream = model.layers[1].self_attn.attention_output.save()
        model.layers[1].skip(stream)
    with (
        pytest.raises(BadValue, match=r"hidden_size 48\), but the tensor has .*hidden_size 3"),
        model.trace(ids_of(model)),
    ):
        model.skip_layer(1, torch.zeros(1, 11, 3))
