"""Edits of what Gemma 4 alone has, and where they reach: borrowed keys, per-layer embeddings, a mixture, keys that are values."""

import pytest
import torch

from conftest import Checkpoint
from edits import WAYS, at, borrowers, by_assignment, check, clean, fill, ids_of, in_place, other_integers, steer, turn
from gemloupe.errors import CannotSkip
from reference.bits import assert_equal_bits

EVERY_WAY = pytest.mark.parametrize("way", WAYS)


def any_of(*names):
    """A fixture of these checkpoints in both dtypes."""

    @pytest.fixture(params=[(name, dtype) for name in names for dtype in ("float32", "bfloat16")], ids="-".join)
    def checkpoint(request, zoo):
        return Checkpoint(zoo, *request.param)

    return checkpoint


lending = any_of("gemma4_e2b", "gemma4_e4b", "gemma4_odd")
per_layer = any_of("gemma4_e2b", "gemma4_e4b", "gemma4_odd")
mixture = any_of("gemma4_moe", "gemma4_odd")
keys_as_values = any_of("gemma4_31b", "gemma4_moe", "gemma4_unified")


def config_of(checkpoint):
    return checkpoint.reference().config


def entering(checkpoint, blocks) -> list[str]:
    """The names of the keys and values these blocks attend with."""
    return [f"layers.{i}.self_attn.attention_{what}" for i in blocks for what in ("keys", "values")]


def is_clean(checkpoint, found, name) -> bool:
    return torch.equal(found[name], clean(checkpoint)[name])


# ------------------------------------------------------------------------------------------------ borrowed keys and values


@EVERY_WAY
@pytest.mark.parametrize("what", ["keys", "values"])
def test_what_a_lender_attends_with_is_its_own(lending, what, way):
    for lender, others in borrowers(config_of(lending)).items():
        names = entering(lending, others)
        found = check(lending, {f"layers.{lender}.self_attn.attention_{what}": WAYS[way](turn)}, [*names, "logits"])
        assert_equal_bits({name: found[name] for name in names}, {name: clean(lending)[name] for name in names})


@EVERY_WAY
@pytest.mark.parametrize("what", ["keys", "values"])
def test_what_a_borrower_attends_with_is_its_own(lending, what, way):
    for first, *others in borrowers(config_of(lending)).values():
        names = entering(lending, others)
        found = check(lending, {f"layers.{first}.self_attn.attention_{what}": WAYS[way](turn)}, [*names, "logits"])
        assert_equal_bits({name: found[name] for name in names}, {name: clean(lending)[name] for name in names})


@EVERY_WAY
@pytest.mark.parametrize("what", ["k", "v"])
def test_what_a_lender_s_projection_gives_reaches_every_borrower(lending, what, way):
    for lender, others in borrowers(config_of(lending)).items():
        names = entering(lending, [lender, *others])
        found = check(lending, {f"layers.{lender}.self_attn.{what}_proj.output": WAYS[way](turn)}, [*names, "logits"])
        moved = "keys" if what == "k" else "values"
        assert all(is_clean(lending, found, name) != name.endswith(moved) for name in names)


def test_several_edits_of_lent_keys(lending):
    """The lender's own, and what is lent, and what one borrower makes of it."""
    for lender, (first, *_) in borrowers(config_of(lending)).items():
        edits = {
            f"layers.{lender}.self_attn.k_proj.output": by_assignment(steer),
            f"layers.{lender}.self_attn.attention_keys": by_assignment(turn),
            f"layers.{lender}.self_attn.attention_values": in_place(fill(0)),
            f"layers.{first}.self_attn.attention_keys": in_place(turn),
            f"layers.{first}.self_attn.attention_values": by_assignment(turn),
        }
        check(lending, edits)


def test_a_lender_is_not_left_out(lending):
    """The reference fails at the first borrower, gemloupe says beforehand who reads."""
    ids, model = ids_of(lending), lending.model()
    for lender, others in borrowers(config_of(lending)).items():
        with pytest.raises(KeyError, match="attention"):
            lending.reference().capture(ids, skip=[lender])
        with pytest.raises(CannotSkip) as caught, model.trace(ids):
            model.skip_layer(lender)
        readers = [i for i in range(model.num_layers) if f"layers.{i}.self_attn'" in str(caught.value)]
        assert readers == others


# ------------------------------------------------------------------------------------------------ per-layer embeddings


def test_a_token_s_embedding_and_its_rows_of_the_table(per_layer):
    """Both together are the token; either alone is half of it."""

    def fifth_as_ninth(tensor):
        return at((slice(None), 5), lambda _: tensor[:, 9])(tensor)

    embedding = {"token_embeddings": by_assignment(fifth_as_ninth)}
    table = {"embed_tokens_per_layer.output": in_place(fifth_as_ninth)}
    both = check(per_layer, embedding | table)["logits"]
    assert_equal_bits(both, per_layer.reference().logits(fifth_as_ninth(ids_of(per_layer))), "the token itself")
    for half in (embedding, table):
        assert not torch.equal(check(per_layer, half)["logits"], both)


@EVERY_WAY
def test_no_block_adds_its_per_layer_output(per_layer, way):
    blocks = range(per_layer.model().num_layers)
    check(per_layer, {f"layers.{i}.per_layer_output": WAYS[way](fill(0)) for i in blocks})


@pytest.mark.parametrize("module", ["per_layer_model_projection", "per_layer_projection_norm"])
def test_every_block_reads_the_projection(per_layer, module):
    names = [f"layers.{i}.per_layer_output" for i in range(per_layer.model().num_layers)]
    found = check(per_layer, {f"{module}.output": by_assignment(turn)}, [*names, "logits"])
    assert not any(is_clean(per_layer, found, name) for name in names)


def test_one_block_s_slice(per_layer):
    """What a block is called with beside its stream."""

    def edit(inputs):
        (stream, own), keywords = inputs
        return (stream, turn(own)), keywords

    last = per_layer.model().num_layers - 1
    found = check(per_layer, {f"layers.{last}.inputs": edit}, [f"layers.{last}.per_layer_output", "logits"])
    assert not is_clean(per_layer, found, f"layers.{last}.per_layer_output")


# ------------------------------------------------------------------------------------------------ mixture

CHOICE = ("router_logits", "expert_weights", "expert_indices", "expert_outputs", "routed_output", "mlp_output")


def after(value: str, block: int) -> list[str]:
    """The mixture's values from this one on, as a run computes them; weights and indices lie at one place."""
    later = CHOICE[CHOICE.index(value) + 1 :]
    return [f"layers.{block}.mlp.{name}" for name in later]


@EVERY_WAY
def test_the_router_s_logits_choose(mixture, way):
    found = check(mixture, {"layers.1.mlp.router_logits": WAYS[way](steer)}, [*after("router_logits", 1), "logits"])
    assert not is_clean(mixture, found, "layers.1.mlp.expert_indices")


@EVERY_WAY
def test_other_experts_have_the_weights_of_those_chosen(mixture, way):
    edits = {"layers.1.mlp.expert_indices": WAYS[way](other_integers)}
    found = check(mixture, edits, ["layers.1.mlp.expert_weights", *after("expert_indices", 1), "logits"])
    assert is_clean(mixture, found, "layers.1.mlp.expert_weights")


@EVERY_WAY
def test_a_slot_without_weight(mixture, way):
    edits = {"layers.0.mlp.expert_weights": WAYS[way](at((..., 0), fill(0)))}
    outputs = check(mixture, edits, [*after("expert_indices", 0), "logits"])["layers.0.mlp.expert_outputs"]
    assert outputs[..., 0, :].eq(0).all()


def test_a_mixture_written_from_its_router_to_its_sum(mixture):
    edits = {
        "shared_expert_output": in_place(turn),
        "router_logits": by_assignment(steer),
        "expert_weights": in_place(lambda weights: weights + 0.5),
        "expert_indices": by_assignment(other_integers),
        "expert_outputs": by_assignment(turn),
        "routed_output": in_place(turn),
        "mlp_output": by_assignment(turn),
    }
    blocks = range(mixture.model().num_layers)
    check(mixture, {f"layers.{i}.mlp.{name}": edit for i in blocks for name, edit in edits.items()})


# ------------------------------------------------------------------------------------------------ keys that are values


def full_blocks(checkpoint) -> list[int]:
    return [i for i, kind in enumerate(config_of(checkpoint).layer_types) if kind == "full_attention"]


@EVERY_WAY
def test_a_full_block_s_keys_are_no_longer_its_values(keys_as_values, way):
    """One projection gives both, but behind its norms each is a tensor of its own."""
    for block in full_blocks(keys_as_values):
        keys, values = entering(keys_as_values, [block])
        found = check(keys_as_values, {keys: WAYS[way](fill(0))}, [values, "logits"])
        assert is_clean(keys_as_values, found, values)
        found = check(keys_as_values, {values: WAYS[way](turn)}, [keys, "logits"])
        assert is_clean(keys_as_values, found, keys)


@EVERY_WAY
def test_a_full_block_s_key_projection_gives_its_values_too(keys_as_values, way):
    for block in full_blocks(keys_as_values):
        names = entering(keys_as_values, [block])
        edits = {f"layers.{block}.self_attn.k_proj.output": WAYS[way](turn)}
        found = check(keys_as_values, edits, [*names, "logits"])
        assert not any(is_clean(keys_as_values, found, name) for name in names)


def test_an_edit_of_one_norm_s_input(keys_as_values):
    """Both norms read what the key projection gives: assigned, one of them alone reads something else."""
    for block in full_blocks(keys_as_values):
        keys, values = entering(keys_as_values, [block])
        for norm, way, moved in (
            ("k", "assigned", [keys]),
            ("v", "assigned", [values]),
            ("k", "in place", [keys, values]),
        ):
            edits = {f"layers.{block}.self_attn.{norm}_norm.input": WAYS[way](turn)}
            found = check(keys_as_values, edits, [keys, values, "logits"])
            assert [name for name in (keys, values) if not is_clean(keys_as_values, found, name)] == moved
