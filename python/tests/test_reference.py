"""The reference itself: it changes nothing, misses nothing and takes the checkpoints' variants for one model."""

import pytest
import torch

from reference import checkpoints
from reference.bits import assert_equal_bits
from reference.capture import BLOCK_INPUTS, BLOCK_OUTPUTS, INTERIOR, Reference, real_rows
from reference.greedy import greedy


@pytest.mark.parametrize("implementation", ["eager", None])
def test_capturing_does_not_perturb(checkpoint, implementation):
    reference = checkpoint.reference(implementation)
    ids = checkpoint.ids()
    assert_equal_bits(reference.capture(ids)["logits"], reference.logits(ids), "logits")
    assert_equal_bits(reference.logits(ids), reference.logits(ids), "logits")


def test_every_value_is_captured(checkpoint):
    reference = checkpoint.reference()
    values = reference.capture(checkpoint.ids())
    inside = ["queries", "keys", "values", "scores", "probabilities", "head_outputs"]
    names = [*BLOCK_INPUTS.values(), *BLOCK_OUTPUTS.values(), *(f"self_attn.attention_{name}" for name in inside)]
    others = {"per_layer_output", "mlp.router_logits", "mlp.routed_output"}  # Gemma 4's
    for block in range(reference.config.num_hidden_layers):
        assert {f"layers.{block}.{name}" for name in set(names) - others} <= set(values)
    assert all(tensor.isfinite().all() for tensor in values.values() if isinstance(tensor, torch.Tensor))
    assert list(values)[:2] == ["input_ids", "attention_mask"] and list(values)[-2:] == ["logits", "next_token_probs"]


def test_values_are_not_degenerate(checkpoint32):
    reference = checkpoint32.reference()
    values = reference.capture(checkpoint32.ids())
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not name.endswith(INTERIOR):
            assert 1e-2 < value.std() < 1e2, name
    clean = values["logits"]
    for block in range(reference.config.num_hidden_layers):
        for name in ("self_attn.attention_output", "mlp.mlp_output"):
            halved = reference.capture(checkpoint32.ids(), edits={f"layers.{block}.{name}": lambda t: t / 2})["logits"]
            assert (halved - clean).abs().max() > 0.05, name


def test_variants_are_one_model(checkpoint):
    expected = checkpoint.reference().logits(checkpoint.ids())
    for variant in checkpoints.VARIANTS[1:]:
        reference = Reference(checkpoint.zoo.folder(checkpoint.name, checkpoint.dtype, variant))
        assert_equal_bits(reference.logits(checkpoint.ids()), expected, variant)


def test_a_block_alone_computes_what_it_computes_in_the_model(checkpoint):
    reference = checkpoint.reference()
    whole = reference.capture(checkpoint.ids())
    for block in range(reference.config.num_hidden_layers):
        alone = reference.block(block, whole[f"layers.{block}.layer_input"])
        for name, value in alone.items():
            assert_equal_bits(value, whole[name], name)


def test_a_padded_row_equals_its_solo_run(checkpoint32):
    reference = checkpoint32.reference()
    ids, mask = checkpoint32.padded()
    batch = reference.capture(ids, mask)["logits"]
    for row in range(len(ids)):
        solo = reference.logits(ids[row : row + 1, mask[row].bool()])
        rows = real_rows("logits", batch[row : row + 1], mask[row : row + 1])
        torch.testing.assert_close(rows, solo[0], atol=1e-4, rtol=0)


def halve_in_place(tensor):
    tensor *= 0.5


def test_in_place_and_replaced_values_reach_the_same_readers(checkpoint32):
    reference = checkpoint32.reference()
    for name in ("attention_norm_output", "layer_mid", "self_attn.attention_keys", "mlp.mlp_neurons"):
        name = f"layers.0.{name}"
        replaced = reference.capture(checkpoint32.ids(), edits={name: lambda t: t * 0.5})["logits"]
        in_place = reference.capture(checkpoint32.ids(), edits={name: halve_in_place})["logits"]
        assert_equal_bits(in_place, replaced, name)


def test_greedy_generates_what_was_asked_for(checkpoint):
    rows = [greedy(checkpoint.reference(), checkpoint.ids(7, seed)) for seed in (1, 2, 3)]
    assert all(len(row) == 32 or row[-1] == 1 for row in rows)
    assert max(len(set(row)) for row in rows) > 2  # a tied head need not repeat the last token


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_are_compared_to_the_last(dtype):
    ones = torch.ones(2, 3, dtype=dtype)
    assert_equal_bits(ones.clone(), ones)
    assert_equal_bits(ones * float("nan"), ones * float("nan"))
    next_up = ones.clone()
    next_up[1, 2] += torch.finfo(dtype).eps
    with pytest.raises(AssertionError, match=r"x: 1 of 6 elements differ, first at \[1, 2\].* 1 ulps"):
        assert_equal_bits(next_up, ones, "x")
    with pytest.raises(AssertionError, match="0 ulps"):
        assert_equal_bits(-0.0 * ones, 0.0 * ones)
    with pytest.raises(AssertionError, match=r"expected \(2, 3\), found \(3, 2\)"):
        assert_equal_bits(ones.T, ones)
    with pytest.raises(AssertionError, match="expected torch.float64"):
        assert_equal_bits(ones, ones.double())
    with pytest.raises(AssertionError, match="expected 2 elements"):
        assert_equal_bits((ones,), (ones, None))
