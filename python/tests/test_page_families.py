"""What the pages say of a forward pass in every family, on tiny checkpoints; Gemma 4's own are in a file beside this."""

import pytest
import torch

from conftest import token_ids
from helpers import logits_of

FAMILIES = ["gemma", "gemma_mqa", "gemma2", "mqa", "softcap", "gemma4_e2b"]


@pytest.fixture(params=FAMILIES)
def model(request, zoo):
    return zoo.model(request.param)


@pytest.fixture(params=["eager", None])
def implementation(request):
    return request.param


@pytest.fixture(params=[*FAMILIES, "gemma4_moe", "gemma4_31b", "gemma4_odd", "gemma4_unified"])
def every_kind(request, zoo, implementation):
    return zoo.model(request.param, "float32", implementation)


def ids_of(model, length=12, seed=3):
    return token_ids(length, model.vocab_size, seed)


def halved(model, ids, what):
    with model.trace(ids):
        mlp = model.layers[1].mlp
        if what == "the value":
            mlp.mlp_output[:] *= 0.5
        else:
            mlp.output[:] *= 0.5
        return model.logits.save()


def test_halving_the_module_or_the_contribution(model):
    """A post-norm sets the scale anew; Gemma 1 has none, so both are the same there."""
    ids, clean = ids_of(model), logits_of(model, ids_of(model))
    value, module = halved(model, ids, "the value"), halved(model, ids, "the module")
    assert (value - clean).abs().max() > 0.05
    if model.config.model_type == "gemma":
        assert torch.equal(value, module)
    else:
        assert (module - clean).abs().max() < 0.05 * (value - clean).abs().max()


def test_the_identity(model):
    for layer in model.layers:
        with model.trace(ids_of(model)):
            total = layer.layer_input.save() + layer.self_attn.attention_output.save() + layer.mlp.mlp_output.save()
            if model.config.model_type == "gemma4_text":
                total = (total + layer.per_layer_output) * layer._module.layer_scalar
            assert torch.equal(total, layer.layer_output)


def test_a_lens_at_the_last_block_is_the_logits(every_kind):
    model = every_kind
    with model.trace(ids_of(model)):
        last = model.layers[-1].layer_output.save()
        raw = model.lm_head_output.save()
        logits = model.logits.save()
    cap = getattr(model.config, "final_logit_softcapping", None) if model.config.model_type != "gemma" else None
    assert torch.equal(model.project_on_vocab(last), logits)
    torch.testing.assert_close(logits, raw if cap is None else cap * torch.tanh(raw / cap))


def test_the_pattern_is_the_softmax_of_the_scores(every_kind):
    model = every_kind
    with model.trace(ids_of(model)):
        scores = model.layers[1].self_attn.attention_scores.save()
        pattern = model.layers[1].self_attn.attention_probabilities.save()
    torch.testing.assert_close(scores.softmax(-1), pattern, rtol=0, atol=2e-7)


def test_gemma_2_caps_its_scores(zoo):
    model = zoo.model("gemma2")
    with model.trace(ids_of(model)):
        scores = model.layers[0].self_attn.attention_scores.save()
    seen = scores[scores > -1e30]
    assert seen.abs().max() <= model.config.attn_logit_softcapping and seen.abs().max() > 1


def test_folded_gains(every_kind):
    """The final norm's gain goes into lm_head: 1 + weight on Gemma 1 to 3, the weight on Gemma 4."""
    model = every_kind
    with model.trace(ids_of(model)):
        last = model.layers[-1].layer_output.save()
        raw = model.lm_head_output.save()
    gain = model.norm._module.weight + (0 if model.config.model_type.startswith("gemma4") else 1)
    unit = last * torch.rsqrt(last.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)
    torch.testing.assert_close(unit @ (model.lm_head._module.weight * gain).T, raw, atol=1e-3, rtol=1e-3)


def test_a_key_value_head_reaches_its_query_heads_alone(every_kind):
    model = every_kind
    ids, block = ids_of(model), model.layers[1].self_attn
    served = block.num_heads // block.num_kv_heads
    with model.trace(ids):
        clean = block.attention_head_outputs.save()
    with model.trace(ids):
        block.attention_values[:, 0] += 1
        edited = block.attention_head_outputs.save()
    differs = (edited - clean).abs().amax((0, 1, 3)) > 1e-3
    assert differs.tolist() == [head < served for head in range(block.num_heads)]


def test_embeddings_are_scaled(model):
    ids = ids_of(model)
    with model.trace(ids):
        found = model.token_embeddings.save()
    table = model.embed_tokens._module.weight
    torch.testing.assert_close(found, table[ids] * model.hidden_size**0.5)
