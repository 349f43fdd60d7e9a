"""The snippets of Gemma 3's page, as they are printed there, on a checkpoint with as many blocks as they name."""

import pytest
import torch

import gemloupe
from gemloupe import StandardizedTransformer
from reference.bits import assert_equal_bits

PROMPT = "The Eiffel Tower is in the city of"


@pytest.fixture(scope="module", params=["eager", None])
def model(request, zoo):
    return zoo.model("deep", "float32", request.param)


@pytest.fixture(scope="module", params=["string", "ids", "dict"])
def prompt(request, model):
    if request.param == "string":
        return PROMPT
    inputs = model.tokenizer(PROMPT, return_tensors="pt")
    return inputs["input_ids"] if request.param == "ids" else dict(inputs)


def test_the_contributions(model, prompt):
    with model.trace(prompt):
        x = model.layers[5].input.save()
        attn = model.layers[5].self_attn.attention_output.save()
        mlp = model.layers[5].mlp.mlp_output.save()
        out = model.layers[5].layer_output.save()

    torch.testing.assert_close(x + attn + mlp, out)
    assert torch.equal(x + attn + mlp, out)


def test_halving_the_module_is_nearly_nothing(model, prompt):
    with model.trace(prompt):
        clean = model.logits.save()
    with model.trace(prompt):
        model.layers[5].mlp.mlp_output[:] *= 0.5  # halves what the block adds
        contribution = model.logits.save()
    with model.trace(prompt):
        model.layers[5].mlp.output[:] *= 0.5  # nearly a no-op
        module = model.logits.save()
    assert (module - clean).abs().max() < 1e-2 < 0.1 < (contribution - clean).abs().max()


def test_a_logit_lens(model, prompt):
    with model.trace(prompt):
        resid = model.layers[12].layer_output[:, -1].save()

    lens = model.project_on_vocab(resid)  # norm, then lm_head; no cap
    assert lens.shape == (1, model.vocab_size)


def test_a_lens_at_the_last_block_is_the_logits(model, prompt):
    with model.trace(prompt):
        resid = model.layers[13].layer_output.save()
        logits = model.logits.save()
    assert_equal_bits(model.project_on_vocab(resid), logits, "lens")
    torch.testing.assert_close(model.project_on_vocab(resid[:, -1]), logits[:, -1], atol=1e-4, rtol=0)


def test_gemma_scope_s_places(model, prompt):
    with model.trace(prompt):
        heads = model.layers[13].self_attn.o_proj.input.save()  # attn_out
        mlp_in = model.layers[13].mlp.input.save()  # transcoder input
        mlp_out = model.layers[13].mlp.mlp_output.save()  # mlp_out, target
        resid = model.layers[13].layer_output.save()  # resid_post

    with model.trace(prompt):
        outputs = model.layers[13].self_attn.attention_head_outputs.save()
        norm = model.layers[13].pre_feedforward_layernorm.output.save()
        after = model.layers[13].post_feedforward_layernorm.output.save()
        native = model.model.layers[13].output.save()
    assert_equal_bits(heads, outputs.flatten(2), "o_proj.input")
    assert heads.shape[-1] == model.num_heads * model.head_dim
    assert_equal_bits(mlp_in, norm, "mlp.input")
    assert_equal_bits(mlp_out, after, "mlp_output")
    assert_equal_bits(resid, native, "layer_output")


def test_a_dict_of_the_processor_s_output(model):
    inputs = model.tokenizer(PROMPT, return_tensors="pt")
    with model.trace(dict(inputs)):
        ids = model.input_ids.save()
        mask = model.attention_mask.save()
        assert list(model.input_size) == list(inputs["input_ids"].shape)
    assert ids.equal(inputs["input_ids"]) and mask.equal(inputs["attention_mask"])


def test_embeddings_are_the_first_block_s_input(model, prompt):
    with model.trace(prompt):
        embeddings = model.token_embeddings.save()
        entering = model.layers[0].input.save()
    assert_equal_bits(embeddings, entering, "layers[0].input")
    rows = model.embed_tokens.weight[model.tokenizer(PROMPT, return_tensors="pt")["input_ids"]]
    assert_equal_bits(embeddings, rows.detach() * torch.tensor(model.hidden_size**0.5), "token_embeddings")


def test_native_reads_around_the_attention(model, prompt):
    with model.trace(prompt):
        queries = model.layers[5].self_attn.q_norm.output.save()
        keys = model.layers[5].self_attn.k_norm.output.save()
        rotated = model.layers[5].self_attn.attention_keys.save()
        values = model.layers[5].self_attn.attention_values.save()
        entering = model.layers[5].self_attn.output[0].save()
        contribution = model.layers[5].post_attention_layernorm.output.save()
    length = queries.shape[2]
    assert queries.shape == (1, model.num_heads, length, model.head_dim)
    assert keys.shape == rotated.shape == values.shape == (1, model.num_kv_heads, length, model.head_dim)
    assert entering.shape == contribution.shape == (1, length, model.hidden_size)


def test_a_block_s_kind_and_a_norm_s_gain(model):
    kinds = [model.layers[i].self_attn._module.sliding_window for i in range(model.num_layers)]
    assert [kind is None for kind in kinds] == [kind == "full_attention" for kind in model.config.layer_types]
    assert set(kinds) == {8, None}
    gain = 1 + model.norm._module.weight
    x = torch.randn(3, model.hidden_size)
    normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps) * gain
    torch.testing.assert_close(model.project_on_vocab(x), normed @ model.lm_head.weight.T, atol=1e-4, rtol=1e-4)


def test_an_edit_of_the_embedding_edits_the_head(zoo):
    model = StandardizedTransformer(zoo.folder("deep"))
    file = zoo.folder("deep") / "model.safetensors"
    before = file.read_bytes()
    with model.trace(PROMPT):
        clean = model.logits.save()
    model.embed_tokens.weight[17] = 0.0
    assert torch.equal(model.lm_head.weight[17], torch.zeros(model.hidden_size))
    with model.trace(PROMPT):
        edited = model.logits.save()
    assert torch.equal(edited[..., 17], torch.zeros_like(edited[..., 17]))
    assert torch.equal(edited[..., :17], clean[..., :17])
    assert file.read_bytes() == before


def test_patching_from_one_run_to_the_next(model):
    with model.trace("The city of"):
        source = model.layers[6].layer_output[:, -1].save()
    with model.trace("The Tower of"):
        model.layers[6].layer_output[:, -1] = source
        patched = model.layers[7].layer_input[:, -1].save()
    assert_equal_bits(patched, source, "layer_input")


def test_next_token_probs(model, prompt):
    with model.trace(prompt):
        logits = model.logits.save()
        probs = model.next_token_probs.save()
    assert probs.shape == (1, model.vocab_size)
    torch.testing.assert_close(probs, logits[:, -1].softmax(-1))


def test_stopping_early(model, prompt):
    with model.trace(prompt) as tracer:
        early = model.layers[2].layer_output.save()
        tracer.stop()
        with pytest.raises(gemloupe.OutsideTrace):
            model.layers[3].layer_output.save()
    with model.trace(prompt):
        full = model.layers[2].layer_output.save()
    assert_equal_bits(early, full, "layer_output")


def test_a_list_of_prompts(model):
    """A padded batch whose rows are the prompts' own runs."""
    prompts = [PROMPT, "a city", "The Tower and the city is in it"]
    with model.trace(prompts):
        mask = model.attention_mask.save()
        batch = model.layers[13].layer_output.save()
        logits = model.logits.save()
    for row, text in enumerate(prompts):
        with model.trace(text):
            stream = model.layers[13].layer_output.save()
            alone = model.logits.save()
        kept = mask[row].bool()
        torch.testing.assert_close(batch[row][kept], stream[0], atol=1e-4, rtol=0)
        torch.testing.assert_close(logits[row][kept], alone[0], atol=1e-4, rtol=0)
