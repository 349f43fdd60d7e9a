"""Every value and every port of Gemma 3 text equals the reference's, bit for bit under eager attention."""

import pytest
import torch

from conftest import token_ids
from gemloupe import StandardizedTransformer
from helpers import PORTS, assert_all_equal, logits_of, module_at, prompt, read_all, saved, standard, within
from reference import checkpoints
from reference.bits import assert_equal_bits
from reference.capture import INTERIOR, OUTSIDE, Reference, real_rows

MODEL_VALUES = (
    "logits token_embeddings final_norm_output lm_head_output next_token_probs input_ids attention_mask"
).split()
BLOCK_VALUES = (
    "layer_input attention_norm_output layer_mid mlp_norm_output mlp_input layer_output"
    " self_attn.attention_queries self_attn.attention_keys self_attn.attention_values self_attn.attention_scores"
    " self_attn.attention_premix self_attn.attention_output self_attn.attention_probabilities"
    " self_attn.attention_head_outputs mlp.mlp_activation mlp.mlp_neurons mlp.mlp_output"
).split()


def ports(captured: dict) -> dict:
    return {name: value for name, value in captured.items() if name.endswith(PORTS)}


# ------------------------------------------------------------------------------------------------ completeness


def test_every_name_of_the_page_is_in_the_plan(checkpoint):
    model = checkpoint.model()
    blocks = checkpoint.reference().config.num_hidden_layers
    expected = [*MODEL_VALUES, *(f"layers.{i}.{name}" for i in range(blocks) for name in BLOCK_VALUES)]
    names = model.value_names()
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(expected)


def test_the_reference_captures_every_name_of_the_plan(checkpoint):
    captured = checkpoint.reference().capture(checkpoint.ids())
    assert set(checkpoint.model().value_names()) == set(standard(captured))


def test_every_module_of_the_reference_is_in_the_plan(checkpoint):
    modules = [path for path, _ in checkpoint.reference().model.named_modules() if path not in OUTSIDE]
    paths = {path.removeprefix("model.") for path in checkpoint.model().module_paths()}
    assert {path.removeprefix("model.") for path in modules} <= paths


def test_values_become_available_in_the_order_of_the_plan(checkpoint):
    """A trace in the plan's own order never is out of order."""
    model = checkpoint.model()
    with model.trace(checkpoint.ids()) as tracer:
        for name in model.value_names():
            assert isinstance(tracer.read(name), torch.Tensor), name


# ------------------------------------------------------------------------------------------------ bit for bit


def test_every_value(checkpoint):
    expected = standard(checkpoint.reference().capture(checkpoint.ids()))
    assert_all_equal(read_all(checkpoint.model(), expected, checkpoint.ids()), expected)


def test_every_port(checkpoint):
    expected = ports(checkpoint.reference().capture(checkpoint.ids()))
    assert_all_equal(read_all(checkpoint.model(), expected, checkpoint.ids()), expected)


def test_values_and_ports_in_one_trace(checkpoint):
    expected = checkpoint.reference().capture(checkpoint.ids(11, seed=5))
    assert_all_equal(read_all(checkpoint.model(), expected, checkpoint.ids(11, seed=5)), expected)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 7, 9, 33, 64])
def test_lengths_around_the_window_and_beyond(checkpoint, length):
    ids = checkpoint.ids(length, seed=length)
    expected = standard(checkpoint.reference().capture(ids))
    assert_all_equal(read_all(checkpoint.model(), expected, ids), expected)


def test_block_by_block(checkpoint):
    """Each block fed with the reference's input, so that no block's rounding reaches the next."""
    reference, model, ids = checkpoint.reference(), checkpoint.model(), checkpoint.ids()
    generator = torch.Generator().manual_seed(7)
    whole = reference.capture(ids)
    for block in range(reference.config.num_hidden_layers):
        stream = whole[f"layers.{block}.layer_input"]
        stream = stream + torch.randn(stream.shape, generator=generator).to(stream.dtype)
        expected = standard(reference.block(block, stream))
        with model.trace(ids) as tracer:
            tracer.write(f"layers.{block}.layer_input", stream)
            found = {name: tracer.read(name).save() for name in expected}
            tracer.stop()
        assert_all_equal(found, expected)


def test_a_batch(checkpoint):
    ids = torch.cat([checkpoint.ids(13, seed=seed) for seed in (1, 2, 3)])
    expected = standard(checkpoint.reference().capture(ids))
    assert_all_equal(read_all(checkpoint.model(), expected, ids), expected)


@pytest.mark.parametrize("lengths", [(17, 9, 1), (5, 20)])
def test_a_batch_padded_on_the_left(checkpoint, lengths):
    ids, mask = checkpoint.padded(lengths)
    captured = checkpoint.reference().capture(ids, mask)
    expected = {name: value for name, value in captured.items() if not name.endswith(".inputs")}
    found = read_all(checkpoint.model(), expected, ids, mask)

    def compare(a, b, name):
        def rows(value):
            if isinstance(value, tuple):  # the attention's output and its pattern
                return real_rows("", value[0], mask), real_rows("attention_probabilities", value[1], mask)
            return real_rows(name, value, mask)

        assert_equal_bits(rows(a), rows(b), name)

    assert_all_equal(found, expected, compare)


def test_block_inputs_of_a_padded_batch(checkpoint):
    """Mask, positions and rotary tables, where a token's position counts the tokens before it."""
    ids, mask = checkpoint.padded()
    captured = checkpoint.reference().capture(ids, mask)
    names = [name for name in captured if name.endswith("layers.0.inputs") or name.endswith("self_attn.inputs")]
    found = read_all(checkpoint.model(), names, ids, mask)
    for name in names:
        for keyword in ("position_ids", "position_embeddings", "attention_mask"):
            a, b = found[name][1][keyword], captured[name][1][keyword]
            if keyword == "attention_mask":
                a, b = (real_rows("attention_scores", tensor, mask) for tensor in (a, b))
            assert_equal_bits(a, b, f"{name} {keyword}")


def test_the_identity_of_a_block(checkpoint):
    model, blocks = checkpoint.model(), checkpoint.reference().config.num_hidden_layers
    with model.trace(checkpoint.ids()):
        for i in range(blocks):
            block = model.layers[i]
            total = block.layer_input + block.self_attn.attention_output + block.mlp.mlp_output
            assert torch.equal(total, block.layer_output), i


# ------------------------------------------------------------------------------------------------ default attention


def test_default_attention_is_within_1e_4(checkpoint32):
    """Values outside the attention function against the reference's default, the ones inside against its eager run."""
    ids = checkpoint32.ids(33)
    captured = standard(checkpoint32.reference(None).capture(ids))
    assert not any(name.endswith(INTERIOR) for name in captured)
    found = read_all(checkpoint32.model(None), captured, ids)
    assert_all_equal(found, captured, within(1e-4))
    eager = standard(checkpoint32.reference().capture(ids))
    found = read_all(checkpoint32.model(None), eager, ids)
    masked = torch.finfo(torch.float32).min / 2

    def compare(a, b, name):
        if name.endswith("attention_scores"):  # a masked score is a huge number, and equal
            assert_equal_bits(a < masked, b < masked, name)
            a, b = a.clamp(min=-1e3), b.clamp(min=-1e3)
        within(1e-4)(a, b, name)

    assert_all_equal(found, eager, compare)


@pytest.mark.parametrize("length", [1, 4, 33])
def test_ports_under_default_attention(checkpoint32, length):
    """What the reference's modules are called with and return there: no mask where it says no more than "causal"."""
    ids = checkpoint32.ids(length)
    expected = ports(checkpoint32.reference(None).capture(ids))
    assert_all_equal(read_all(checkpoint32.model(None), expected, ids), expected, within(1e-4))


def test_default_attention_on_a_padded_batch(checkpoint32):
    ids, mask = checkpoint32.padded()
    expected = checkpoint32.reference(None).capture(ids, mask)["logits"]
    found = logits_of(checkpoint32.model(None), ids, mask)
    within(1e-4)(real_rows("logits", found, mask), real_rows("logits", expected, mask), "logits")


# ------------------------------------------------------------------------------------------------ other ways to load


@pytest.mark.parametrize("variant", checkpoints.VARIANTS[1:])
def test_variants_of_a_folder(checkpoint, variant):
    folder = checkpoint.zoo.folder(checkpoint.name, checkpoint.dtype, variant)
    model = StandardizedTransformer(folder, attn_implementation="eager")
    expected = checkpoint.reference().logits(checkpoint.ids())
    assert_equal_bits(logits_of(model, checkpoint.ids()), expected, "logits")


@pytest.mark.parametrize("stored, wanted", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_another_dtype_than_the_file(zoo, stored, wanted):
    for dtype in (wanted, getattr(torch, wanted)):
        model = StandardizedTransformer(zoo.folder("softcap", stored), dtype=dtype, attn_implementation="eager")
        reference = Reference(zoo.folder("softcap", stored), dtype=getattr(torch, wanted))
        ids = token_ids(20, 401)
        expected = standard(reference.capture(ids))
        assert_all_equal(read_all(model, expected, ids), expected)


def test_a_gguf_file(zoo):
    """Dequantised as the folder beside it, whose values are the reference's."""
    model = StandardizedTransformer(checkpoints.gguf_file(zoo.root), attn_implementation="eager")
    ids = token_ids(20, 393)
    expected = standard(zoo.reference("gguf").capture(ids))
    assert_all_equal(read_all(model, expected, ids), expected)


def test_two_threads(zoo):
    """The same bits as the reference with the same number of threads, where there is enough to share out."""
    ids = token_ids(200, 400)
    torch.set_num_threads(2)
    try:
        expected = standard(zoo.reference("mqa").capture(ids))
        found = read_all(zoo.model("mqa"), expected, ids)
    finally:
        torch.set_num_threads(1)
    assert_all_equal(found, expected)


# ------------------------------------------------------------------------------------------------ derived


def test_a_lens_at_the_last_block_is_the_logits(checkpoint):
    model, blocks = checkpoint.model(), checkpoint.reference().config.num_hidden_layers
    with model.trace(checkpoint.ids()):
        stream = model.layers[blocks - 1].layer_output.save()
        logits = model.logits.save()
    assert_equal_bits(model.project_on_vocab(stream), logits, "project_on_vocab")


def test_input_size_and_native_spellings(checkpoint):
    model = checkpoint.model()
    ids = checkpoint.ids(9)
    with model.trace(prompt(ids)):
        assert list(model.input_size) == [1, 9]
        native = saved(module_at(model, "model.layers.0.mlp").output)
        standard_spelling = saved(model.layers[0].mlp.output)
        by_list = saved(model.layers[-1].layer_output)
        last = saved(model.layers[model.num_layers - 1].layer_output)
    assert_equal_bits(native, standard_spelling, "model.layers[0].mlp.output")
    assert_equal_bits(by_list, last, "model.layers[-1].layer_output")
