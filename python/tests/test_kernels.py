"""Our own kernels: bfloat16, not under eager, not where gradients are recorded."""

import gc
import weakref

import torch

from conftest import Checkpoint
from reference.bits import assert_equal_bits


def test_a_recorded_run_has_gradients_and_the_same_logits(zoo):
    checkpoint = Checkpoint(zoo, "mqa", "bfloat16")
    model, ids = checkpoint.model(None), checkpoint.ids(3)
    plain = model(ids)
    with model.trace(ids):
        leaf = model.token_embeddings.clone().requires_grad_()
        model.token_embeddings = leaf
        recorded = model.logits.save()
    recorded.float().sum().backward()
    assert leaf.grad.isfinite().all() and leaf.grad.any()
    exact = checkpoint.exact()(ids)
    errors = [(logits.detach().double() - exact).abs().max() for logits in (plain, recorded)]
    assert errors[0] <= 2 * errors[1]


def test_few_rows_have_the_bits_of_one(zoo):
    checkpoint = Checkpoint(zoo, "mqa", "bfloat16")
    model = checkpoint.model(None)
    with torch.no_grad():
        hidden = torch.randn(4, 1, model.hidden_size).bfloat16()
        rows = model.project_on_vocab(hidden)
        for index in range(4):
            assert_equal_bits(model.project_on_vocab(hidden[index : index + 1]), rows[index : index + 1], "a row")


def test_a_trace_is_gone_when_its_body_is(zoo):
    """Nothing is left to the collector: its tensors would wait for it."""
    checkpoint = Checkpoint(zoo, "mqa", "float32")
    model, ids = checkpoint.model(None), checkpoint.ids(3)
    gc.disable()
    try:
        with model.trace(ids) as tracer:
            model.logits[:, -1].save()
        gone = weakref.ref(tracer)
        del tracer
        assert gone() is None
    finally:
        gc.enable()
