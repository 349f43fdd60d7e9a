"""The other text families against the reference: every value and port of their plans, batches, edits, greedy tokens."""

from __future__ import annotations

import pytest
import torch

from conftest import Checkpoint
from helpers import as_exact, assert_all_equal, assert_padded_batch_equal, assert_walk_equal, read_all, standard
from reference import checkpoints
from reference.greedy import greedy

EACH = [(name, dtype) for name in checkpoints.OTHER_FAMILIES for dtype in ("float32", "bfloat16")]


@pytest.fixture(scope="session", params=EACH, ids="-".join)
def other(request, zoo) -> Checkpoint:
    return Checkpoint(zoo, *request.param)


@pytest.fixture(scope="session", params=checkpoints.OTHER_FAMILIES)
def other32(request, zoo) -> Checkpoint:
    return Checkpoint(zoo, request.param, "float32")


@pytest.mark.parametrize("length", [1, 5, 8, 9, 20, 33])
def test_every_value_and_port(other, length):
    assert_walk_equal(other, other.ids(length, seed=length))


def test_a_padded_batch(other):
    assert_padded_batch_equal(other)


@pytest.mark.parametrize("length", [1, 7, 20])
def test_every_value_under_the_default(other32, length):
    ids = other32.ids(length, seed=length)
    expected = standard(other32.reference().capture(ids))
    exact = read_all(other32.exact(), expected, ids)
    assert_all_equal(read_all(other32.model(None), expected, ids), expected, as_exact(exact))


def test_each_block_fed_with_the_reference_s_stream(other):
    """In bfloat16 what one block rounds must not hide what the next one does."""
    ids = other.ids(14, seed=14)
    captured = other.reference().capture(ids)
    for block in range(other.model().num_layers):
        stream = captured[f"layers.{block}.layer_input"]
        names = [name for name in standard(captured) if name.startswith(f"layers.{block}.")]
        expected = {name: captured[name] for name in names}
        with other.model().trace(ids) as tracer:
            tracer.write(f"layers.{block}.layer_input", stream)
            found = {name: tracer.read(name).save() for name in names if not name.endswith("layer_input")}
        expected.pop(f"layers.{block}.layer_input")
        assert_all_equal(found, expected)


def test_the_released_spelling_is_the_same_model(other):
    from gemloupe import StandardizedTransformer

    released = StandardizedTransformer(
        other.zoo.folder(other.name, other.dtype, "released"), attn_implementation="eager"
    )
    ids = other.ids(20)
    assert torch.equal(released(ids), other.model()(ids))


@pytest.mark.parametrize("length", [4, 40])
def test_greedy_tokens(other, length):
    ids = other.ids(length, seed=length)
    expected = greedy(other.reference(), ids)
    assert other.model().generate(ids, max_new_tokens=32)[0, length:].tolist() == expected


def test_explicit_sdpa_on_gemma_2_warns_and_leaves_out_the_softcap(zoo):
    from gemloupe import StandardizedTransformer

    with pytest.warns(UserWarning, match="softcap"):
        uncapped = StandardizedTransformer(zoo.folder("gemma2"), attn_implementation="sdpa")
    ids = Checkpoint(zoo, "gemma2", "float32").ids(20)
    assert (uncapped(ids) - zoo.model("gemma2")(ids)).abs().max() > 1e-2


@pytest.mark.parametrize("implementation", ["eager", None])
def test_rows_of_a_padded_batch_are_their_own_runs(every32, implementation):
    """On whichever side the padding is, within 1e-5 of the largest logit, or as near as the
    reference's own rows are; positions that are given are kept."""
    model, reference = every32.model(implementation), every32.reference(implementation)
    left, mask = every32.padded()
    right = torch.stack([ids.roll(int(row.sum()), 0) for ids, row in zip(left, mask, strict=True)])
    for ids, real in ((left, mask), (right, mask.flip(1))):
        logits, expected = model({"input_ids": ids, "attention_mask": real}), reference.logits(ids, real)
        for row, kept in enumerate(real.bool()):
            alone = model(ids[row, kept])[0]
            theirs = (expected[row, kept] - reference.logits(ids[row : row + 1, kept])[0]).abs().max()
            assert (logits[row, kept] - alone).abs().max() <= max(1e-5 * alone.abs().max(), theirs)
    ids, far = every32.ids(9), torch.arange(100, 109)
    moved = model(ids, position_ids=far)
    given = model({"input_ids": ids, "position_ids": far[None], "attention_mask": torch.ones_like(ids)})
    assert torch.equal(moved, given) and not torch.equal(moved, model(ids, position_ids=far * 2))
