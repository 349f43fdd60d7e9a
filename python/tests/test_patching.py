"""Attributions, ablations and patches in bulk, beside plain computations on what transformers computes."""

import builtins
from types import SimpleNamespace

import pytest
import torch

import gemloupe
from conftest import Checkpoint
from gemloupe.attribution import _scales_from
from gemloupe.interventions import activation_patching, direct_logit_attribution, head_ablation
from helpers import encoded

TEXTS = ["the city of", "a much longer text is in", "x"]


@pytest.fixture(scope="module", params=["mqa", "softcap", "untied", "gemma", "gemma2"])
def checkpoint(request, zoo):
    return Checkpoint(zoo, request.param, "float32")


# -------------------------------------------------------------------------------------------------------- attribution


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("idx", [-1, 1])
def test_the_terms_sum_to_the_logit(checkpoint, reference, implementation, idx):
    model = checkpoint.model(implementation)
    ids, mask = encoded(model, TEXTS)
    captured = reference.capture(ids, mask)
    rows, columns = torch.arange(3), torch.full((3,), ids.shape[1] - 1) if idx == -1 else (mask == 0).sum(-1) + 1
    tokens = [5, 300, 77]
    found = direct_logit_attribution(model, TEXTS, tokens, idx=idx)
    expected = captured["lm_head_output"][rows, columns][:, tokens]
    assert (found.total() - expected).abs().max() < 1e-4
    capped = direct_logit_attribution(model, TEXTS, torch.tensor(tokens), idx=idx, softcap=True)
    assert (capped.total() - captured["logits"][rows, columns][:, tokens]).abs().max() < 1e-4
    assert found.heads.shape == (3, model.num_layers, model.layers[0].num_heads, 3)


@pytest.mark.parametrize("name", ["gemma4_e2b", "gemma4_e4b", "gemma4_31b", "gemma4_moe", "gemma4_unified"])
def test_the_terms_of_gemma_4_carry_its_scalars(zoo, name):
    checkpoint = Checkpoint(zoo, name, "float32")
    ids = checkpoint.ids(9)
    found = direct_logit_attribution(checkpoint.model(), ids, [5, 7])
    expected = checkpoint.reference().capture(ids)["lm_head_output"][:, -1, [5, 7]]
    assert (found.total() - expected).abs().max() < 1e-4
    assert (found.per_layer is not None and found.per_layer.abs().sum() > 0) == (name in ("gemma4_e2b", "gemma4_e4b"))


def test_each_term_is_that_part_s(checkpoint, model, reference):
    """The embedding and an MLP through the frozen norm; a head as what its absence would take from the attention's output."""
    ids = checkpoint.ids(9)
    captured = reference.capture(ids)
    final = captured[f"layers.{model.num_layers - 1}.layer_output"][0, -1].double()
    norm, weights = reference.model.model.norm, reference.model.lm_head.weight.detach()[[7, 8]].double()
    epsilon = getattr(norm, "eps", None) or norm.variance_epsilon
    scale = (1 + norm.weight.detach().double()) / (final.square().mean() + epsilon).sqrt()
    found = direct_logit_attribution(model, ids, [7, 8])

    def direct(term):
        return weights @ (scale * term[0, -1].double())

    assert (found.embedding[0] - direct(captured["token_embeddings"])).abs().max() < 1e-4
    for layer in range(model.num_layers):
        assert (found.mlps[0, layer] - direct(captured[f"layers.{layer}.mlp.mlp_output"])).abs().max() < 1e-4
        whole = captured[f"layers.{layer}.self_attn.attention_output"]
        assert (found.attentions[0, layer] - direct(whole)).abs().max() < 1e-4
        premix = captured[f"layers.{layer}.self_attn.attention_premix"][0, -1]
        projection = reference.model.model.layers[layer].self_attn.o_proj
        projected = captured[f"layers.{layer}.self_attn.o_proj.output"][0, -1]
        ratio = whole[0, -1].double() / projected.double()  # what the norm after it multiplied by
        alone = premix[1] @ projection.weight.detach()[:, premix.shape[1] : 2 * premix.shape[1]].T
        assert (found.heads[0, layer, 1] - weights @ (scale * alone.double() * ratio)).abs().max() < 1e-4
        assert (found.attention_bias[0, layer] != 0).all() == (projection.bias is not None)


def test_layer_scalars():
    """Gemma 4: (stream + attention + MLP) * scalar leaves a block, so a term is multiplied by all that follow it."""
    blocks = [SimpleNamespace(_module=SimpleNamespace(layer_scalar=torch.tensor([s]))) for s in (0.5, 3.0, 0.25)]
    assert _scales_from(SimpleNamespace(layers=blocks)) == [0.375, 0.75, 0.25]


def test_tokens_of_an_attribution(model):
    found = direct_logit_attribution(model, TEXTS, [" city", 7])
    assert found.tokens.tolist() == [model.tokenizer.convert_tokens_to_ids("▁city"), 7]
    assert direct_logit_attribution(model, TEXTS, "a").embedding.shape == (3, 1)
    for tokens in ("two words", [model.vocab_size], [-1], []):
        with pytest.raises(gemloupe.BadOption):
            direct_logit_attribution(model, TEXTS, tokens)


# ----------------------------------------------------------------------------------------------------------- patching


def margin(logits):
    return (logits[:, 7] - logits[:, 9]).mean()


def test_head_ablation(model, reference):
    ids, mask = encoded(model, TEXTS)
    found = head_ablation(model, TEXTS, margin, batch_size=7, progress=False)
    assert found.ablated.shape == (model.num_layers, model.layers[0].num_heads)
    assert found.clean == pytest.approx(float(margin(reference.capture(ids, mask)["logits"][:, -1])), abs=1e-5)
    for layer in range(model.num_layers):
        for head in range(model.layers[0].num_heads):

            def edit(premix, head=head):
                premix[:, :, head] = 0

            edits = {f"layers.{layer}.self_attn.attention_premix": edit}
            expected = float(margin(reference.capture(ids, mask, edits=edits)["logits"][:, -1]))
            assert float(found.ablated[layer, head]) == pytest.approx(expected, abs=1e-4)
    torch.testing.assert_close(found.effect, found.ablated - found.clean)


def test_the_ablation_of_some_heads(model, capsys):
    every = head_ablation(model, TEXTS, margin, progress=False)
    some = head_ablation(model, TEXTS, margin, heads=[(2, 1), (-1, -1), (2, 1)])
    assert "heads" in capsys.readouterr().err
    there = ~some.ablated.isnan()
    assert there.nonzero().tolist() == sorted([[2, 1], [model.num_layers - 1, model.layers[-1].num_heads - 1]])
    torch.testing.assert_close(some.ablated[there], every.ablated[there], atol=1e-4, rtol=0)
    for heads in ([(99, 0)], [(0, 99)], [3]):
        with pytest.raises(gemloupe.BadOption):
            head_ablation(model, TEXTS, margin, heads, progress=False)
    with pytest.raises(gemloupe.BadValue, match="one number"):
        head_ablation(model, TEXTS, lambda logits: logits, progress=False)


PATCHED = ["layer_output", "layer_mid", "attention_output", "mlp.mlp_output", "attention_queries"]


@pytest.mark.parametrize("value", PATCHED)
def test_activation_patching(checkpoint, model, reference, value):
    clean, corrupted = checkpoint.ids(6, seed=4), checkpoint.ids(6, seed=5)
    captured = reference.capture(clean)
    name = next(name for name in captured if name.startswith("layers.1.") and name.endswith(value))
    axis = 2 if value == "attention_queries" else 1
    found = activation_patching(model, clean, corrupted, margin, value, layers=[1], batch_size=4, progress=False)
    assert found.layers == [1] and found.positions == list(range(6))
    assert found.clean == pytest.approx(float(margin(captured["logits"][:, -1])), abs=1e-4)
    assert found.corrupted == pytest.approx(float(margin(reference.capture(corrupted)["logits"][:, -1])), abs=1e-4)
    for position in range(6):

        def edit(tensor, position=position):
            tensor.select(axis, position).copy_(captured[name].select(axis, position))

        expected = float(margin(reference.capture(corrupted, edits={name: edit})["logits"][:, -1]))
        assert float(found.patched[0, position]) == pytest.approx(expected, abs=1e-4), position


def test_patching_the_whole_last_column_recovers_everything(model):
    """The last block's last position alone decides the logits."""
    found = activation_patching(
        model,
        "a city",
        "x city",
        margin,
        ["layer_output", "mlp_output"],
        layers=[0, -1],
        positions=[-1, 1],
        progress=False,
    )
    patched = found["layer_output"]
    assert list(found) == ["layer_output", "mlp_output"] and patched.patched.shape == (2, 2)
    assert float(patched.recovered[1, 0]) == pytest.approx(1, abs=1e-4)
    assert float(patched.recovered[1, 1]) == pytest.approx(0, abs=1e-4)


def test_patching_padded_batches(model):
    clean, corrupted = ["the city of", "a"], ["the city is", "x"]
    found = activation_patching(model, clean, corrupted, margin, layers=-1, positions=-1, progress=False)
    assert float(found.recovered[0, 0]) == pytest.approx(1, abs=1e-4)


def test_what_patching_refuses(model):
    def patch(*prompts, **options):
        return activation_patching(model, *prompts, margin, progress=False, **options)

    with pytest.raises(gemloupe.BadPrompt, match="as many"):
        patch("a", "a b")
    for options in (dict(values="attention_scores"), dict(positions=9), dict(layers=99), dict(batch_size=0)):
        with pytest.raises(gemloupe.BadOption):
            patch("a", "b", **options)
    with pytest.raises(gemloupe.UnknownName):
        patch("a", "b", values="layer_outputs")


def test_progress_without_tqdm(monkeypatch, capsys):
    from gemloupe.progress import progress

    importing = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return importing(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    assert list(progress(range(3), desc="heads")) == [0, 1, 2]
    assert capsys.readouterr().err == "heads 3/3\n"
