"""What Gemma 4's page says of a forward pass, tried on tiny checkpoints of each of its kinds."""

import pytest
import torch

from conftest import token_ids
from gemloupe.errors import Absent, BadValue
from helpers import logits_of


@pytest.fixture(scope="module", params=["eager", None])
def implementation(request):
    return request.param


@pytest.fixture(scope="module")
def e2b(zoo, implementation):
    return zoo.model("gemma4_e2b", "float32", implementation)


@pytest.fixture(scope="module")
def moe(zoo, implementation):
    return zoo.model("gemma4_moe", "float32", implementation)


def ids_of(model, length=12, seed=3):
    return token_ids(length, model.vocab_size, seed)


def test_the_sum_is_scaled_and_its_terms_are_not(e2b):
    for block in range(e2b.num_layers):
        with e2b.trace(ids_of(e2b)):
            x = e2b.layers[block].input.save()
            attn = e2b.layers[block].self_attn.attention_output.save()
            mlp = e2b.layers[block].mlp.mlp_output.save()
            ple = e2b.layers[block].per_layer_output.save()
            out = e2b.layers[block].layer_output.save()
        scalar = e2b.layers[block]._module.layer_scalar
        assert scalar.shape == (1,) and scalar != 1
        assert torch.equal((x + attn + mlp + ple) * scalar, out)


def test_a_term_s_weight_is_the_product_of_the_scalars_from_its_block_on(e2b):
    model = e2b
    scalars = torch.cat([layer._module.layer_scalar for layer in model.layers])
    weight = scalars.flip(0).cumprod(0).flip(0)

    added = []
    with model.trace(ids_of(model)):
        emb = model.token_embeddings.save()
        for layer in model.layers:
            attn = layer.self_attn.attention_output
            added.append((attn + layer.mlp.mlp_output + layer.per_layer_output).save())
        final = model.layers[-1].layer_output.save()

    total = weight[0] * emb + sum(w * a for w, a in zip(weight, added, strict=True))
    torch.testing.assert_close(total, final, atol=1e-4, rtol=1e-4)


def test_the_model_depends_on_per_layer_embeddings(e2b):
    ids = ids_of(e2b)
    with e2b.trace(ids):
        for layer in e2b.layers:
            layer.per_layer_output[:] = 0
        logits = e2b.logits.save()
    assert (logits - logits_of(e2b, ids)).abs().max() > 0.1


def test_a_token_is_its_embedding_and_its_row_of_the_table(e2b):
    model, paris, rome = e2b, ids_of(e2b), ids_of(e2b)
    rome[0, -1] = (paris[0, -1] + 1) % model.vocab_size
    with model.trace(rome):
        emb = model.token_embeddings.save()
        table = model.model.embed_tokens_per_layer.output.save()
    with model.trace(paris):
        model.token_embeddings[:, -1] = emb[:, -1]
        half = model.logits.save()
    with model.trace(paris):
        model.token_embeddings[:, -1] = emb[:, -1]
        model.model.embed_tokens_per_layer.output[:, -1] = table[:, -1]
        whole = model.logits.save()
    assert not torch.allclose(half, logits_of(model, rome), atol=1e-2)
    assert torch.equal(whole, logits_of(model, rome))


def test_a_block_s_second_argument_is_its_slice(e2b):
    width = e2b.config.hidden_size_per_layer_input
    ids = ids_of(e2b)
    with e2b.trace(ids):
        own = [layer.inputs[0][1].save() for layer in e2b.layers]
        logits = e2b.logits.save()
    assert all(slice_.shape == (1, ids.shape[1], width) for slice_ in own)
    assert torch.equal(logits, logits_of(e2b, ids))
    with e2b.trace(ids):
        e2b.layers[3].inputs[0][1][:] = 0
        third = e2b.layers[3].per_layer_output.save()
        later = e2b.layers[4].inputs[0][1].save()
    assert third.eq(0).all() and torch.equal(later, own[4])


def borrowed_by(model):
    """The blocks that attend with block `source`'s keys: the last of a kind with projections of its own."""
    kinds, shared = model.config.layer_types, model.config.num_kv_shared_layers
    first = model.num_layers - shared
    source = {kind: max(i for i in range(first) if kinds[i] == kind) for kind in set(kinds)}
    return {source[kind]: [i for i in range(first, model.num_layers) if kinds[i] == kind] for kind in source}


def test_borrowed_keys_are_the_source_s_and_private(e2b):
    ids = ids_of(e2b)
    assert all(borrowed_by(e2b).values())
    for source, borrowers in borrowed_by(e2b).items():
        assert not hasattr(e2b.layers[borrowers[0]].self_attn, "k_proj")
        with e2b.trace(ids):
            keys = e2b.layers[source].self_attn.attention_keys.save()
            values = e2b.layers[source].self_attn.attention_values.save()
            copies = [
                (e2b.layers[i].self_attn.attention_keys.save(), e2b.layers[i].self_attn.attention_values.save())
                for i in borrowers
            ]
        for k, v in copies:
            assert torch.equal(k, keys) and torch.equal(v, values)

        # Written in place or assigned, the source's stay there; so do a borrower's.
        for in_place in (True, False):
            with e2b.trace(ids):
                if in_place:
                    e2b.layers[source].self_attn.attention_keys[:] = 0
                else:
                    e2b.layers[source].self_attn.attention_keys = torch.zeros_like(keys)
                first = e2b.layers[borrowers[0]].self_attn.attention_keys
                assert torch.equal(first, keys)
                first[:] = 0
                again = e2b.layers[borrowers[0]].self_attn.attention_keys
                assert again.eq(0).all()
                if len(borrowers) > 1:
                    assert torch.equal(e2b.layers[borrowers[1]].self_attn.attention_keys, keys)

        with e2b.trace(ids):
            e2b.layers[source].self_attn.k_proj.output[:] *= 0.5
            moved = [e2b.layers[i].self_attn.attention_keys.save() for i in borrowers]
        # k_norm takes the scale out again, up to its epsilon; a change of direction stays.
        with e2b.trace(ids):
            e2b.layers[source].self_attn.k_proj.output[..., 0] += 3
            turned = [e2b.layers[i].self_attn.attention_keys.save() for i in borrowers]
        assert all(not torch.equal(k, keys) for k in moved + turned)
        assert all((k - keys).abs().max() > 0.05 for k in turned)


def test_keys_that_are_values(zoo, implementation):
    model = zoo.model("gemma4_31b", "float32", implementation)
    ids = ids_of(model)
    full = model.config.layer_types.index("full_attention")
    attention = model.layers[full].self_attn
    assert not hasattr(attention, "v_proj") and hasattr(model.layers[0].self_attn, "v_proj")
    assert (attention.head_dim, attention.num_kv_heads) == (14, 2) and (model.head_dim, model.num_kv_heads) == (10, 3)
    with model.trace(ids):
        keys, values = attention.attention_keys.save(), attention.attention_values.save()
    with model.trace(ids):
        attention.k_proj.output[..., 0] += 3
        assert not torch.equal(attention.attention_keys, keys)
        assert not torch.equal(attention.attention_values, values)
    with model.trace(ids):
        attention.attention_keys[:] = 0
        assert torch.equal(attention.attention_values, values)
    rms = values.pow(2).mean(-1).sqrt()
    torch.testing.assert_close(rms, torch.ones_like(rms), atol=1e-3, rtol=0)  # v_norm has no gain


# ------------------------------------------------------------------------------------------------ mixture


def test_what_the_mixture_computes(moe):
    block, ids = moe.layers[2], ids_of(moe)
    k = moe.config.top_k_experts
    with moe.trace(ids):
        shared = block.mlp.shared_expert_output.save()
        one = block.post_feedforward_layernorm_1.output.save()
        logits = block.mlp.router_logits.save()
        weights = block.mlp.expert_weights.save()
        indices = block.mlp.expert_indices.save()
        outputs = block.mlp.expert_outputs.save()
        routed = block.mlp.routed_output.save()
        two = block.post_feedforward_layernorm_2.output.save()
        summed = block.post_feedforward_layernorm.input.save()
        mlp_output = block.mlp.mlp_output.save()
        normed = block.post_feedforward_layernorm.output.save()
    assert logits.shape == (1, ids.shape[1], moe.config.num_experts) and indices.dtype == torch.int64
    top = logits.float().softmax(-1).topk(k)
    assert torch.equal(indices, top.indices)
    scale = block.router._module.per_expert_scale
    torch.testing.assert_close(weights, top.values / top.values.sum(-1, keepdim=True) * scale[indices])
    assert torch.equal(outputs.sum(-2), routed)
    assert torch.equal(one + two, summed) and torch.equal(mlp_output, normed)
    assert shared.shape == routed.shape == mlp_output.shape


def test_an_expert_s_weight_scales_its_output(moe):
    block, ids = moe.layers[0], ids_of(moe)
    with moe.trace(ids):
        clean = block.mlp.expert_outputs.save()
    with moe.trace(ids):
        block.mlp.expert_weights[..., 1] = 0
        outputs = block.mlp.expert_outputs.save()
        routed = block.mlp.routed_output.save()
    assert outputs[..., 1, :].eq(0).all()
    torch.testing.assert_close(routed, clean[..., 0, :] + clean[..., 2, :])


def test_tokens_sent_to_other_experts(moe):
    block, ids = moe.layers[0], ids_of(moe)
    with moe.trace(ids):
        block.mlp.expert_indices[..., 0] = 4
        block.mlp.expert_indices[..., 1] = 4
        block.mlp.expert_weights[:] = 1
        outputs = block.mlp.expert_outputs.save()
    assert torch.equal(outputs[..., 0, :], outputs[..., 1, :])
    for index in (-1, moe.config.num_experts):
        with (
            pytest.raises(BadValue, match=rf"expert_indices holds {index}, but the experts are 0 to 8"),
            moe.trace(ids),
        ):
            block.mlp.expert_indices[0, 0, 0] = index
            moe.logits.save()
    with pytest.raises(BadValue, match="Long"), moe.trace(ids):
        block.mlp.expert_indices = torch.zeros(1, ids.shape[1], 3)


def test_ports_of_router_and_experts_are_rows(moe):
    ids = torch.cat([ids_of(moe), ids_of(moe, seed=4)])
    rows = ids.numel()
    with moe.trace(ids):
        normed = moe.layers[1].router.norm.output.save()
        probabilities, weights, indices = (part.save() for part in moe.layers[1].router.output)
        (hidden, index, weight), _ = moe.layers[1].experts.inputs
        assert hidden.shape == (rows, moe.hidden_size) and index.shape == weight.shape == (rows, 3)
        moe.layers[1].experts.output = torch.ones(rows, moe.hidden_size)
        routed = moe.layers[1].mlp.routed_output.save()
    assert normed.shape == (rows, moe.hidden_size) and routed.eq(1).all() and routed.shape[:2] == ids.shape
    assert torch.equal(weights, weights) and indices.shape == (rows, 3)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(rows))


# ------------------------------------------------------------------------------------------------ sizes, absences


def test_blocks_have_sizes_of_their_own(e2b):
    kinds = e2b.config.layer_types
    assert (e2b.head_dim, e2b.num_kv_heads, e2b.intermediate_size) == (16, 1, 40)
    for i, layer in enumerate(e2b.layers):
        assert layer.self_attn.head_dim == (24 if kinds[i] == "full_attention" else 16)
        assert layer.self_attn.num_heads == 4
        assert layer.mlp.intermediate_size == (80 if i >= 4 else 40)


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("gemma4_e2b", "mlp.router_logits", "dense checkpoint: no mixture"),
        ("gemma4_moe", "per_layer_output", "no per-layer embeddings in this checkpoint"),
        ("mqa", "mlp.expert_weights", "mixture of experts"),
        ("gemma2", "per_layer_output", "per-layer embeddings"),
    ],
)
def test_an_absent_value_says_why(zoo, name, value, reason):
    model = zoo.model(name)
    with pytest.raises(Absent, match=reason), model.trace(ids_of(model)) as tracer:
        tracer.read(f"layers.0.{value}")


def test_mixture_values_are_printed_where_the_family_has_them(zoo):
    assert "(router_logits)" in str(zoo.model("gemma4_e2b")) and "(router_logits)" not in str(zoo.model("mqa"))
