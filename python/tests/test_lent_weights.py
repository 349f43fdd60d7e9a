"""Weights that a run reads as they are stored: whoever reads one has a copy, which changes and costs nothing for long."""

import weakref

import pytest
import torch

import gemloupe
from conftest import token_ids
from gemloupe import interventions

IDS = token_ids(9, 60)
NARROW, BLOCKS = "bfloat16 in float32", "Q8_0"


def load(zoo, tmp_path, stored: str):
    if stored == NARROW:
        return gemloupe.StandardizedTransformer(zoo.folder("untied", "bfloat16"), dtype="float32")
    gemloupe.quantize(zoo.folder("gguf"), tmp_path / "q.gguf")
    return gemloupe.StandardizedTransformer(tmp_path / "q.gguf")


@pytest.fixture(params=[NARROW, BLOCKS])
def stored(request, zoo, tmp_path):
    return load(zoo, tmp_path, request.param)


def down(model):
    return model.layers[0].mlp.down_proj


def test_a_reader_s_copy_goes_with_the_next_run(stored):
    before = stored(IDS)
    copy = weakref.ref(down(stored).weight)
    assert copy() is down(stored).weight and copy().shape == (stored.hidden_size, stored.config.intermediate_size)
    assert torch.equal(stored(IDS), before) and copy() is None
    held = down(stored).weight
    close = stored(IDS)
    assert held is down(stored).weight and (close - before).abs().max() <= 1e-5 * before.abs().max()
    part = held[:2]
    del held
    part[:] = 0  # a part is the weight, too
    assert not torch.equal(stored(IDS), before)


@pytest.mark.parametrize("write", ["place", "data", "numpy", "assign", "augmented"])
def test_what_is_written_counts_from_then_on(stored, write):
    before, module = stored(IDS), down(stored)
    expected = module.weight * 2
    with torch.no_grad():
        if write == "place":
            module.weight.mul_(2)
        elif write == "data":
            module.weight.data.mul_(2)
        elif write == "numpy":
            module.weight.numpy()[:] *= 2
        elif write == "assign":
            module.weight = expected
        else:
            module.weight *= 2
    for _ in range(2):
        assert not torch.allclose(stored(IDS), before)
        assert torch.equal(module.weight, expected)


def test_what_is_trained_keeps_its_gradient(stored):
    down(stored).weight.requires_grad_()
    for _ in range(2):
        with stored.trace(IDS):
            loss = stored.logits[0, -1, 3]
        loss.backward()
    assert down(stored).weight.grad.abs().sum() > 0


def test_a_weight_first_read_in_inference_mode_can_be_trained(zoo, tmp_path, stored):
    with torch.inference_mode():
        stored(IDS)
        assert not down(stored).weight.is_inference()
        loaded = load(zoo, tmp_path, NARROW)
    for model in (stored, loaded):
        down(model).weight.requires_grad_()
        with model.trace(IDS):
            loss = model.logits[0, -1, 3]
        loss.backward()
        assert down(model).weight.grad is not None


@pytest.mark.parametrize("weight", ["lm_head", "norm"])
@pytest.mark.parametrize("read", ["rows", "all", "probabilities", "project"])
def test_a_readout_records_for_its_own_weights(zoo, weight, read):
    model = gemloupe.StandardizedTransformer(zoo.folder("untied"))
    trained = getattr(model, weight).weight
    trained.requires_grad_()
    with model.trace(IDS):
        if read == "project":
            out = model.project_on_vocab(torch.ones(1, 2, model.hidden_size))
        elif read == "probabilities":
            out = model.next_token_probs
        else:
            out = model.logits[:, -1] if read == "rows" else model.logits.save()
    out[..., 3].sum().backward()
    assert trained.grad.abs().sum() > 0


def test_lenses_and_attribution_borrow_no_weight(stored, monkeypatch):
    monkeypatch.setattr(
        type(stored._core), "weight", lambda core, slot: pytest.fail("a whole weight was made numbers"), raising=True
    )
    interventions.logit_lens(stored, IDS)
    assert stored.dtype == torch.float32 and stored.device == torch.device("cpu")
