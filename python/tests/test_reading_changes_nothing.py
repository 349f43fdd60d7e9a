"""What a trace reads never changes what it computes."""

import pytest

from conftest import Checkpoint
from helpers import is_tuple, logits_of, prompt, read_all
from reference import checkpoints
from reference.bits import assert_equal_bits


def logits_with(model, names, ids, mask=None):
    return read_all(model, names, ids, mask)["logits"]


def test_saving_every_value_under_eager(checkpoint):
    model, ids = checkpoint.model(), checkpoint.ids()
    assert_equal_bits(logits_with(model, model.value_names(), ids), logits_of(model, ids), "logits")
    assert_equal_bits(logits_of(model, ids), checkpoint.reference().logits(ids), "logits")
    assert_equal_bits(model(ids), logits_of(model, ids), "model(ids)")


def test_saving_every_value_of_a_padded_batch(checkpoint):
    model, (ids, mask) = checkpoint.model(), checkpoint.padded()
    assert_equal_bits(logits_with(model, model.value_names(), ids, mask), logits_of(model, ids, mask), "logits")


def test_saving_every_port_under_eager(checkpoint):
    model, ids = checkpoint.model(), checkpoint.ids()
    names = [name for name in checkpoint.reference().capture(ids) if name.endswith((".input", ".inputs", ".output"))]
    assert_equal_bits(logits_with(model, [*names, "logits"], ids), logits_of(model, ids), "logits")


@pytest.mark.parametrize("length", [1, 7, 33, 1100])  # the last: rows in blocks
def test_saving_every_value_under_the_default(checkpoint, length):
    model, ids = checkpoint.model(None), checkpoint.ids(length)
    assert_equal_bits(logits_with(model, model.value_names(), ids), logits_of(model, ids), "logits")


def test_saving_every_value_of_a_padded_batch_under_the_default(checkpoint):
    model, (ids, mask) = checkpoint.model(None), checkpoint.padded()
    assert_equal_bits(logits_with(model, model.value_names(), ids, mask), logits_of(model, ids, mask), "logits")


@pytest.mark.parametrize("name", checkpoints.OTHER_FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saving_every_value_of_another_family_under_the_default(zoo, name, dtype):
    model, ids = zoo.model(name, dtype, None), Checkpoint(zoo, name, dtype).ids(20)
    assert_equal_bits(logits_with(model, model.value_names(), ids), logits_of(model, ids), "logits")


@pytest.mark.parametrize("implementation", ["eager", None])
def test_a_run_leaves_no_trace_in_the_next(checkpoint, implementation):
    """Edits end with their run, and a stopped run leaves nothing behind."""
    model, ids = checkpoint.model(implementation), checkpoint.ids()
    before = logits_of(model, ids)
    with model.trace(prompt(ids)):
        model.layers[0].layer_output[:] *= 3.0
        edited = model.logits.save()
    assert not edited.equal(before)
    with model.trace(prompt(ids)) as tracer:
        model.token_embeddings[:] = 0.0
        tracer.stop()
    assert_equal_bits(logits_of(model, ids), before, "logits")


def test_a_snapshot_does_not_follow_later_edits(checkpoint):
    model, ids = checkpoint.model(), checkpoint.ids()
    clean = read_all(model, ["layers.0.layer_output"], ids)["layers.0.layer_output"]
    with model.trace(prompt(ids)):
        whole = model.layers[0].layer_output.save()
        part = model.layers[0].layer_output[:, -1].save()
        model.layers[0].layer_output[:] = 0.0
    assert_equal_bits(whole, clean, "layer_output")
    assert_equal_bits(part, clean[:, -1], "layer_output[:, -1]")


def test_weights_and_inputs_stay_as_they_were(checkpoint):
    model, ids = checkpoint.model(), checkpoint.ids()
    weight = model.embed_tokens.weight.clone()
    kept = ids.clone()
    with model.trace(prompt(ids)):
        model.token_embeddings[:] = 1.0
        model.final_norm_output[:] *= 2.0
        model.logits.save()
    assert_equal_bits(model.embed_tokens.weight.detach(), weight, "embed_tokens.weight")
    assert ids.equal(kept)


@pytest.mark.parametrize("implementation", ["eager", None])
def test_no_later_edit_reaches_a_snapshot(checkpoint32, implementation):
    """Whatever shares storage with a saved value: what was saved stays, and the edit has its whole effect."""
    model, ids = checkpoint32.model(implementation), checkpoint32.ids(9)
    reference = checkpoint32.reference()
    block = reference.config.num_hidden_layers - 1
    names = [
        name for name in reference.capture(ids) if name.startswith((f"layers.{block}.", "norm", "lm_head", "logits"))
    ]
    names = [name for name in names if not is_tuple(name)]

    def run(saved_name, edited_name):
        with model.trace(ids) as tracer:
            kept = tracer.read(saved_name).save() if saved_name else None
            edited = tracer.read(edited_name)
            edited *= 0.5
            logits = model.logits.save()
        return kept, logits

    compare = assert_equal_bits
    for index, name in enumerate(names):
        clean = read_all(model, [name], ids)[name]
        for later in names[index : index + 5]:
            kept, logits = run(name, later)
            assert_equal_bits(kept, clean, f"{name}, saved before {later} was edited")
            compare(logits, run(None, later)[1], f"logits after {name} was saved and {later} edited")


@pytest.mark.parametrize("implementation", ["eager", None])
def test_a_held_tensor_is_the_model_s_until_it_is_saved(checkpoint32, implementation):
    model, ids = checkpoint32.model(implementation), checkpoint32.ids(9)
    for name in ("layer_input", "attention_norm_output", "layer_mid", "mlp_norm_output", "layer_output"):
        name = f"layers.0.{name}"
        clean = read_all(model, [name], ids)[name]
        with model.trace(ids) as tracer:
            tensor = tracer.read(name)
            before = tensor.save()
            part = tensor[:, -1].save()
            tensor *= 2
            after = tensor.save()
            tensor += 1
            entering = tracer.read(name).save()
        assert_equal_bits(before, clean, f"{name} before")
        assert_equal_bits(part, clean[:, -1], f"{name} before, the last position")
        assert_equal_bits(after, clean * 2, f"{name} between")
        assert_equal_bits(entering, clean * 2 + 1, f"{name} after")
