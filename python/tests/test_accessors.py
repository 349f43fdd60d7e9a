"""Values by block number, steering, nearest tokens."""

import pytest
import torch

import gemloupe
from conftest import Checkpoint
from helpers import within
from reference.bits import assert_equal_bits

VALUES = {
    "layers_input": "layers.{}.layer_input",
    "layers_output": "layers.{}.layer_output",
    "attentions_input": "layers.{}.attention_norm_output",
    "attentions_output": "layers.{}.self_attn.attention_output",
    "mlps_input": "layers.{}.mlp_input",
    "mlps_output": "layers.{}.mlp.mlp_output",
    "attention_probabilities": "layers.{}.self_attn.attention_probabilities",
}


@pytest.fixture(scope="module", params=["mqa", "gemma", "gemma2"])
def checkpoint(request, zoo):
    return Checkpoint(zoo, request.param, "float32")


@pytest.mark.parametrize("name", VALUES)
def test_an_accessor_reads_the_value_of_each_block(checkpoint, model, name):
    ids = checkpoint.ids(7)
    captured = checkpoint.reference().capture(ids)
    accessor = getattr(model, name)
    assert len(accessor) == model.num_layers
    with model.trace(ids):
        saved = [value.save() for value in accessor]
    assert len(saved) == model.num_layers
    for layer, value in enumerate(saved):
        assert_equal_bits(value, captured[VALUES[name].format(layer)], f"{name}[{layer}]")
    with model.trace(ids):
        last = accessor[-1].save()
    assert_equal_bits(last, saved[-1], f"{name}[-1]")


@pytest.mark.parametrize("name", VALUES)
def test_an_accessor_writes(checkpoint, model, name):
    ids = checkpoint.ids(7)
    edit = {VALUES[name].format(1): lambda tensor: tensor * 0.5}
    expected = checkpoint.reference().capture(ids, edits=edit)["logits"]
    with model.trace(ids):
        getattr(model, name)[1] *= 0.5
        in_place = model.logits.save()
    with model.trace(ids):
        accessor = getattr(model, name)
        accessor[1 - model.num_layers] = accessor(1) * 0.5
        assigned = model.logits.save()
    assert_equal_bits(in_place, expected, name)
    assert_equal_bits(assigned, expected, name)


def test_modules_by_number(model):
    assert model.attentions[-1] is model.layers[-1].self_attn
    assert list(model.mlps) == [layer.mlp for layer in model.layers]
    with pytest.raises(gemloupe.BadOption, match="mlps_input"):
        model.mlps[0] = torch.zeros(1)


def test_the_final_norm(checkpoint, model):
    ids = checkpoint.ids(7)
    captured = checkpoint.reference().capture(ids)
    with model.trace(ids):
        read = model.ln_final.input.save(), model.ln_final.output.save()
        model.ln_final.output = model.ln_final.output * 0.5
        logits = model.logits.save()
    assert_equal_bits(read[0], captured["norm.input"], "input")
    assert_equal_bits(read[1], captured["final_norm_output"], "output")
    edit = {"final_norm_output": lambda tensor: tensor * 0.5}
    assert_equal_bits(logits, checkpoint.reference().capture(ids, edits=edit)["logits"], "logits")


def test_what_an_accessor_refuses(model):
    with pytest.raises(IndexError), model.trace([2, 3]):
        _ = model.layers_output[model.num_layers]
    with pytest.raises(gemloupe.BadOption, match="one integer"):
        _ = model.layers_output[1:3]
    with pytest.raises(gemloupe.OutsideTrace):
        _ = model.layers_output[0]
    with pytest.raises(gemloupe.OutOfOrder, match=r"layers\.1\.layer_output.*test_accessors"), model.trace([2, 3]):
        _ = model.layers_output[2]
        _ = model.layers_output[1]
    assert "layers[i].mlp.mlp_output" in repr(model.mlps_output)


# ------------------------------------------------------------------------------------------------------------ steering

PLACES = {  # what steer is called with, and the part of the stream that is
    "everywhere": ({}, (slice(None), slice(None))),
    "one position": ({"token_positions": 2}, (slice(None), 2)),
    "the last position": ({"token_positions": -1}, (slice(None), -1)),
    "positions": ({"token_positions": [1, 4]}, (slice(None), [1, 4])),
    "a tensor of positions": ({"token_positions": torch.tensor([1, 4])}, (slice(None), [1, 4])),
    "a row": ({"batch_index": 1}, (1, slice(None))),
    "a row's positions": ({"batch_index": 0, "token_positions": [0, 3]}, (0, [0, 3])),
    "pairs": ({"batch_index": [0, 1], "token_positions": [5, 2]}, ([0, 1], [5, 2])),
}


@pytest.mark.parametrize("place", PLACES)
def test_steering(checkpoint, model, place):
    options, part = PLACES[place]
    ids = torch.cat([checkpoint.ids(7, seed=1), checkpoint.ids(7, seed=2)])
    vector = torch.randn(model.hidden_size, generator=torch.Generator().manual_seed(0))

    def edit(stream):
        stream[part] += 3 * vector

    last = model.num_layers - 1
    edits = {f"layers.{layer}.layer_output": edit for layer in (0, last)}
    expected = checkpoint.reference().capture(ids, edits=edits)["logits"]
    with model.trace(ids):
        model.steer([-1, 0], vector, factor=3, **options)
        logits = model.logits.save()
    assert_equal_bits(logits, expected, place)


def test_the_old_name_of_positions(checkpoint, model):
    ids, vector = checkpoint.ids(7), torch.ones(model.hidden_size)
    with model.trace(ids):
        with pytest.warns(DeprecationWarning, match="token_positions"):
            model.steer(1, vector, positions=3)
        old = model.logits.save()
    with model.trace(ids):
        model.steer(1, vector, token_positions=3)
        new = model.logits.save()
    assert_equal_bits(old, new, "logits")


def test_what_steering_refuses(model):
    vector = torch.ones(model.hidden_size)
    with pytest.raises(gemloupe.BadOption, match="one of them"), model.trace([2, 3]):
        model.steer(0, vector, positions=0, token_positions=0)
    with pytest.raises(gemloupe.BadValue, match="hidden_size"), model.trace([2, 3]):
        model.steer(0, vector[:-1])
    with pytest.raises(gemloupe.BadOption, match="no block"), model.trace([2, 3]):
        model.steer(model.num_layers, vector)


# -------------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("name", ["mqa", "softcap"])
def test_the_closest_tokens(zoo, name):
    """Probabilities of the model's own last position are those it returns, softcap and all."""
    checkpoint = Checkpoint(zoo, name, "float32")
    model, ids = checkpoint.model(), torch.cat([checkpoint.ids(6, seed=1), checkpoint.ids(6, seed=2)])
    captured = checkpoint.reference().capture(ids)
    streams = captured[f"layers.{model.num_layers - 1}.layer_output"][:, -1]
    best = captured["next_token_probs"].topk(4)
    found = model.get_topk_closest_tokens(streams, k=4)
    assert len(found) == 2
    for row, tokens in enumerate(found):
        assert list(tokens) == model.tokenizer.convert_ids_to_tokens(best.indices[row])
        within(1e-5)(torch.tensor(list(tokens.values())), best.values[row], "probabilities")
    assert model.get_topk_closest_tokens(streams[0], k=4) == pytest.approx(found[0], abs=1e-5)
    with pytest.raises(gemloupe.BadValue):
        model.get_topk_closest_tokens(streams[None])
    with pytest.raises(gemloupe.BadValue):
        model.get_topk_closest_tokens(streams[:, :-1])
    with pytest.raises(gemloupe.BadOption):
        model.get_topk_closest_tokens(streams[0], k=0)
