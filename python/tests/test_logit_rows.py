"""Rows of the logits: an index computes what it names, and is otherwise the index of the whole tensor."""

import pytest
import torch

import gemloupe
from conftest import Checkpoint
from helpers import logits_of, within
from reference.bits import assert_equal_bits

EVERY = slice(None)
INDICES = {
    "last position": (EVERY, -1),
    "first row": 0,
    "one number": (0, 1, 5),
    "some positions": (EVERY, slice(-3, None)),
    "every second": (EVERY, slice(None, None, 2)),
    "some words": (EVERY, EVERY, slice(5, 9)),
    "one word": (..., 7),
    "a word of the last position": (EVERY, -1, 7),
    "a list of positions": (EVERY, [0, 3]),
    "a tensor of positions": (EVERY, torch.tensor([2, 2, 0])),
    "pairs": ([0, 1, 1], [0, 2, 3]),
    "pairs of words": ([0, 1], [0, 2], [7, 8]),
    "words of a position": (0, 2, torch.tensor([4, 9])),
    "a mask": (EVERY, torch.tensor([True, False] * 4)),
    "a new axis": (None, 0),
    "nothing": (EVERY, slice(3, 3)),
    "everything": EVERY,
}


@pytest.fixture(scope="module", params=["mqa", "softcap"])
def checkpoint(request, zoo):
    return Checkpoint(zoo, request.param, "float32")


@pytest.fixture(scope="module")
def ids(checkpoint):
    return torch.cat([checkpoint.ids(8, seed=1), checkpoint.ids(8, seed=2)])


def comparison(implementation):
    return assert_equal_bits if implementation == "eager" else within(1e-4)


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", ["logits", "lm_head_output"])
def test_an_index_reads_what_it_names(checkpoint, ids, name, implementation):
    model = checkpoint.model(implementation)
    whole = checkpoint.reference(implementation).capture(ids)[name]
    for what, index in INDICES.items():
        with model.trace(ids):
            part = getattr(model, name)[index].save()
            again = getattr(model, name)[index].save()
            full = getattr(model, name).save()
        comparison(implementation)(part, whole[index], what)
        assert_equal_bits(again, part, what)
        comparison(implementation)(full, whole, f"everything after {what}")


@pytest.mark.parametrize("implementation", ["eager", None])
def test_an_edited_part_is_in_the_whole(checkpoint, ids, implementation):
    model, reference = checkpoint.model(implementation), checkpoint.reference(implementation)
    for what, index in INDICES.items():

        def edit(tensor, index=index):
            tensor[index] = tensor[index] * 0.5

        expected = reference.capture(ids, edits={"lm_head_output": edit})
        with model.trace(ids):
            model.lm_head_output[index] *= 0.5
            logits = model.logits.save()
            probabilities = model.next_token_probs.save()
        comparison(implementation)(logits, expected["logits"], f"{what} edited")
        comparison(implementation)(probabilities, expected["next_token_probs"], f"{what} edited")
        with model.trace(ids):
            model.lm_head_output[index] = model.lm_head_output[index] * 0.5
            logits = model.logits.save()
        comparison(implementation)(logits, expected["logits"], f"{what} assigned")


@pytest.mark.parametrize("implementation", ["eager", None])
def test_a_held_part_edits_the_run(checkpoint, ids, implementation):
    model, reference = checkpoint.model(implementation), checkpoint.reference(implementation)

    def edit(tensor):
        tensor[:, -1] += 1.0
        tensor[0, -1, 7] = 50.0

    expected = reference.capture(ids, edits={"logits": edit})
    with model.trace(ids):
        last = model.logits[:, -1]
        last += 1.0
        last[0, 7] = 50.0
        probabilities = model.next_token_probs.save()
    comparison(implementation)(probabilities, expected["next_token_probs"], "next_token_probs")
    with model.trace(ids):
        last = model.logits[:, -1]
        last += 1.0
        last[0, 7] = 50.0
        logits = model.logits.save()
    comparison(implementation)(logits, expected["logits"], "logits")


@pytest.mark.parametrize("implementation", ["eager", None])
def test_the_whole_is_a_tensor_in_expressions(checkpoint, ids, implementation):
    model = checkpoint.model(implementation)
    whole = logits_of(model, ids)
    with model.trace(ids):
        assert model.logits.shape == whole.shape and model.logits.dtype == whole.dtype
        best = model.logits.argmax(-1).save()
        shifted = (model.logits - 1.0).save()
        softmax = torch.softmax(model.logits[:, -1], -1).save()
        probabilities = model.next_token_probs.save()
    assert torch.equal(best, whole.argmax(-1))
    assert_equal_bits(shifted, whole - 1.0, "logits - 1")
    within(1e-5)(softmax, whole[:, -1].softmax(-1), "softmax")
    within(1e-5)(probabilities, whole[:, -1].softmax(-1), "next_token_probs")
    with model.trace(ids):
        model.logits *= 2.0
        doubled = model.logits.save()
    assert_equal_bits(doubled, whole * 2.0, "logits * 2")
    with model.trace(ids):
        model.logits = torch.zeros_like(whole)
        probabilities = model.next_token_probs.save()
    within(1e-6)(probabilities, torch.full_like(probabilities, 1 / whole.shape[-1]), "next_token_probs")


def test_torch_functions_take_the_logits(checkpoint, ids):
    model = checkpoint.model(None)
    whole = logits_of(model, ids)
    with model.trace(ids):
        softmax = torch.softmax(model.logits, -1).save()
    assert_equal_bits(softmax, torch.softmax(whole, -1), "torch.softmax(model.logits)")


def test_a_row_out_of_order(checkpoint, ids):

    model = checkpoint.model(None)
    with model.trace(ids):
        assert model.next_token_probs.shape[0] == 2
        with pytest.raises(gemloupe.OutOfOrder):
            _ = model.layers[0].layer_output
