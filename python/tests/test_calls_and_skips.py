"""Modules called beside a run, and modules that a run leaves out."""

import re
import subprocess
import sys

import pytest
import torch

from conftest import token_ids
from gemloupe.errors import BadOption, BadValue, CannotCall, CannotSkip, NotInThisRun, OutOfOrder
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


# ------------------------------------------------------------------------------------------------ whole ranges


@pytest.mark.parametrize("name", FAMILIES)
def test_a_text_model_called_with_ids(zoo, name):
    model = zoo.model(name)
    ids = torch.cat([ids_of(model), ids_of(model, seed=8)])
    with model.trace(ids):
        embeddings = model.embed_tokens.output.save()
        expected = model.model.output[0].save()
    assert torch.equal(model.embed_tokens(ids), model.model.embed_tokens(ids))
    assert torch.equal(model.embed_tokens(ids), embeddings)
    assert torch.equal(model.model(ids)[0], expected)


def test_a_call_that_does_not_fit(zoo):
    model = zoo.model("mqa")
    for value in (None, [1.0], 3):
        with pytest.raises(BadValue, match="it takes a tensor"):
            model.norm(value)
    with pytest.raises(BadValue, match=r"\[batch seq hidden_size\]"):
        model.layers[0](torch.zeros(3, model.hidden_size))
    with pytest.raises(BadValue, match="position_ids"):
        model.layers[0].self_attn(torch.zeros(1, 3, model.hidden_size), position_ids=[0, 1, 2])


def test_a_range_is_refused_before_anything_is_skipped(zoo):
    model = zoo.model("gemma4_e2b")
    ids = ids_of(model)
    lender = next(i for i, info in enumerate(model.layers) if i and _is_refused(model, ids, i))
    with model.trace(ids):
        with pytest.raises(CannotSkip, match="read what is made inside"):
            model.skip_layers(0, lender)
        assert torch.equal(model.logits.save(), model(ids))
    # From the first lender to the end nothing is left to read what they make.
    with model.trace(ids):
        model.skip_layers(lender, -1)
        stream = model.layers[-1].layer_output.save()
    with model.trace(ids):
        assert torch.equal(stream, model.layers[lender].layer_input.save())


def _is_refused(model, ids, layer) -> bool:
    with model.trace(ids):
        try:
            model.skip_layer(layer)
        except CannotSkip:
            return True
    return False


def test_ranges_that_are_none(zoo):
    model = zoo.model("mqa")
    for start, end in ((3, 1), (0, 99), (-99, 0)):
        with pytest.raises(BadOption), model.trace(ids_of(model)):
            model.skip_layers(start, end)


def test_shapes_of_what_has_no_name_of_its_own(zoo):
    model = zoo.model("mqa")
    width = model.layers[1].intermediate_size
    for module, shape in ((model.layers[1].mlp.gate_proj, [1, 11, width]), (model.layers[1].self_attn.q_norm, None)):
        with (
            pytest.raises(BadValue, match=re.escape(str(shape)) if shape else "must have the shape"),
            model.trace(ids_of(model)),
        ):
            module.skip(torch.zeros(1, 11, 3))
    with model.trace(ids_of(model)):
        model.layers[1].mlp.gate_proj.skip(torch.zeros(1, 11, width))
        assert model.layers[1].mlp.mlp_output.isfinite().all()


def test_a_skip_at_the_top_of_a_script(zoo, tmp_path):
    """Where no frame lies between the script and the package."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, gemloupe\n"
        "model = gemloupe.StandardizedTransformer(sys.argv[1])\n"
        "ids = torch.arange(5)[None] + 3\n"
        "with model.trace(ids):\n"
        "    model.layers[1].mlp.skip(torch.zeros(1, 5, model.hidden_size))\n"
        "    model.skip_layer(2)\n"
        "    try:\n"
        "        model.layers[0].layer_output\n"
        "    except gemloupe.OutOfOrder as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, script, zoo.folder("mqa")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "line 6 of" in done.stdout and "line 8 of" in done.stdout
