"""Attribution patching and integrated gradients, beside transformers' autograd and the runs that they estimate."""

import numpy
import pytest
import torch

import gemloupe
from conftest import Checkpoint
from gemloupe.interventions import activation_patching, attribution_patching, integrated_gradients
from helpers import encoded, prompt
from reference.capture import BLOCK_INPUTS, BLOCK_OUTPUTS, PRE_NORM_INPUTS, PRE_NORM_OUTPUTS

NAMES = ["mqa", "gemma", "gemma2", "gemma4_e2b", "gemma4_moe"]
VALUES = ["layer_output", "layer_mid", "attention_output", "mlp_output", "mlp_neurons", "attention_premix"]
EMBEDDINGS = "token_embeddings"
CLEAN, CORRUPTED = ["the city of", "a"], ["the city is", "x"]


@pytest.fixture(params=NAMES)
def checkpoint(request, zoo):
    return Checkpoint(zoo, request.param, "float32")


def margin(logits):
    return (logits[:, 7] - logits[:, 9]).sum()


def margin64(logits):
    return margin(logits.double())


def attributed(model, *arguments, **options):
    return attribution_patching(model, *arguments, progress=False, **options)


def integrated(model, *arguments, **options):
    return integrated_gradients(model, *arguments, progress=False, **options)


def close(found, expected, relative=1e-5):
    assert found.shape == expected.shape and found.dtype == torch.float64
    assert (found - expected).abs().max() <= relative * expected.abs().max()
    assert expected.abs().max() > 0


# ------------------------------------------------------------------------------------------- transformers' autograd


def port_of(reference, value):
    """The path in a block of the module whose input, or else output, a value is."""
    sandwich = reference.text_config.model_type != "gemma"
    tables = (BLOCK_INPUTS, BLOCK_OUTPUTS) if sandwich else (PRE_NORM_INPUTS, PRE_NORM_OUTPUTS)
    return next(
        (path, table is tables[0])
        for table in tables
        for path, name in table.items()
        if name.rsplit(".", 1)[-1] == value
    )


def by_autograd(reference, ids, mask, values, embeddings=None):
    """What hooks see: the metric, and each value of each block and its gradient; with other embeddings, if they are given."""
    kept, handles = {}, []

    def keep(key, value):
        kept[key] = value[0] if isinstance(value, tuple) else value
        kept[key].retain_grad()

    def enter(module, args, output):
        kept[EMBEDDINGS] = (output.detach() if embeddings is None else embeddings.float()).clone().requires_grad_()
        return kept[EMBEDDINGS]

    handles.append(reference.model.get_submodule("model.embed_tokens").register_forward_hook(enter))
    for value in values:
        path, is_input = port_of(reference, value)
        for number, block in enumerate(reference.model.model.layers):
            module, key = block.get_submodule(path), (value, number)
            if is_input:
                handles.append(module.register_forward_pre_hook(lambda module, args, key=key: keep(key, args)))
            else:
                handles.append(module.register_forward_hook(lambda module, args, output, key=key: keep(key, output)))
    try:
        metric = margin(reference.model(**reference.inputs(ids, mask), use_cache=False).logits[:, -1].float())
        metric.backward()
    finally:
        for handle in handles:
            handle.remove()
        reference.model.zero_grad()
    found = {key: value.detach().double() for key, value in kept.items()}
    return metric.item(), found, {key: value.grad.double() for key, value in kept.items()}


@pytest.mark.parametrize("padded", [False, True])
def test_every_position_of_every_layer(checkpoint, model, reference, padded):
    clean, corrupted = (CLEAN, CORRUPTED) if padded else (checkpoint.ids(8, seed=4), checkpoint.ids(8, seed=5))
    of_clean, of_corrupted = (encoded(model, p) if padded else (p, None) for p in (clean, corrupted))
    found = attributed(model, clean, corrupted, margin, VALUES)
    after, sources, _ = by_autograd(reference, *of_clean, VALUES)
    before, bases, gradients = by_autograd(reference, *of_corrupted, VALUES)
    assert list(found) == VALUES
    for value, estimate in found.items():
        expected = [
            ((sources[value, layer] - bases[value, layer]) * gradients[value, layer]).sum((0, -1))
            for layer in range(model.num_layers)
        ]
        close(estimate.effect, torch.stack(expected))
        assert estimate.clean == pytest.approx(after, abs=1e-4)
        assert estimate.corrupted == pytest.approx(before, abs=1e-4)
        torch.testing.assert_close(estimate.recovered, estimate.effect / (estimate.clean - estimate.corrupted))


def test_every_head(model, reference):
    of_clean, of_corrupted = encoded(model, CLEAN), encoded(model, CORRUPTED)
    found = attributed(
        model, CLEAN, CORRUPTED, margin, "attention_premix", heads=True, layers=[2, 0], positions=[-1, 1]
    )
    _, sources, _ = by_autograd(reference, *of_clean, ["attention_premix"])
    _, bases, gradients = by_autograd(reference, *of_corrupted, ["attention_premix"])
    expected = []
    for layer in (2, 0):
        key = ("attention_premix", layer)
        head_dim = reference.model.model.layers[layer].self_attn.head_dim
        terms = ((sources[key] - bases[key]) * gradients[key]).unflatten(-1, (-1, head_dim))
        expected.append(terms.sum((0, -1))[[-1, 1]])
    close(found.effect, torch.stack(expected))
    assert found.layers == [2, 0] and found.positions == [of_clean[0].shape[1] - 1, 1]


def gauss_legendre(steps):
    places, weights = numpy.polynomial.legendre.leggauss(steps)
    return zip((places + 1) / 2, weights / 2, strict=True)


def test_gradients_averaged_along_the_embeddings(model, reference):
    """The ids stay the corrupted prompt's: Gemma 4 E2B looks up its per-layer embeddings by them."""
    of_clean, of_corrupted = encoded(model, CLEAN), encoded(model, CORRUPTED)
    found = attributed(model, CLEAN, CORRUPTED, margin, ["mlp_output", "layer_output"], steps=3, batch_size=4)
    _, sources, _ = by_autograd(reference, *of_clean, found)
    _, bases, _ = by_autograd(reference, *of_corrupted, found)
    start, end = bases[EMBEDDINGS], sources[EMBEDDINGS]
    means = dict.fromkeys(bases, 0)
    for place, weight in gauss_legendre(3):
        _, _, gradients = by_autograd(reference, *of_corrupted, found, start + place * (end - start))
        means = {key: means[key] + weight * gradients[key] for key in means}
    for value, estimate in found.items():
        expected = [
            ((sources[value, i] - bases[value, i]) * means[value, i]).sum((0, -1)) for i in range(model.num_layers)
        ]
        close(estimate.effect, torch.stack(expected))


@pytest.mark.filterwarnings("ignore:the attributions sum")
def test_integrated_gradients(model, reference):
    """The ids stay the prompt's."""
    of_clean, of_corrupted = encoded(model, CLEAN), encoded(model, CORRUPTED)
    after, ends, _ = by_autograd(reference, *of_clean, [])
    start, end = by_autograd(reference, *of_corrupted, [])[1][EMBEDDINGS], ends[EMBEDDINGS]
    mean = 0
    for place, weight in gauss_legendre(3):
        mean = mean + weight * by_autograd(reference, *of_clean, [], start + place * (end - start))[2][EMBEDDINGS]
    found = integrated(model, CLEAN, margin, baseline=CORRUPTED, steps=3, batch_size=4)
    close(found.attributions, (end - start) * mean)
    torch.testing.assert_close(found.by_position, found.attributions.sum(-1))
    assert found.clean == pytest.approx(after, abs=1e-4)
    assert found.baseline == pytest.approx(by_autograd(reference, *of_clean, [], start)[0], abs=1e-4)


# ---------------------------------------------------------------------------------------------- what they estimate


def differing_by(zoo, name, size):
    """A checkpoint in which the embeddings of tokens 5 and 6 differ by `size`, and prompts that differ in these."""
    model = gemloupe.StandardizedTransformer(zoo.folder(name), attn_implementation="eager", dtype="float64")
    for table in [model.embed_tokens.weight] + [
        weight for name, weight in model.named_parameters() if "embed_tokens_per_layer" in name
    ]:
        noise = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(3))
        table[6] = table[5] + size * table[5].std() * noise
    clean = torch.tensor([[2, 40, 5, 41, 5, 42]])
    return model, clean, torch.where(clean == 5, 6, clean)


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_nears_what_patching_gives(zoo, name):
    """Its error is of second order: a third of the difference leaves about a third of it, relative to the effect."""
    values = ["layer_output", "attention_queries", "attention_keys", "attention_values", "mlp_activation"]
    errors = {value: [] for value in values}
    for size in (0.03, 0.01):
        model, clean, corrupted = differing_by(zoo, name, size)
        options = dict(layers=[0, -1], progress=False)
        estimates = attribution_patching(model, clean, corrupted, margin64, values, **options)
        for value, patched in activation_patching(model, clean, corrupted, margin64, values, **options).items():
            effect = patched.patched - patched.corrupted
            assert effect.abs().max() > 1e-4
            errors[value].append(float((estimates[value].effect - effect).abs().max() / effect.abs().max()))
    for value, (large, small) in errors.items():
        assert small < 0.6 * large and small < 0.05, value


@pytest.mark.filterwarnings("ignore:the attributions sum")
@pytest.mark.parametrize("name", ["mqa", "gemma", "gemma2"])
def test_integrated_gradients_are_complete(zoo, name):
    checkpoint = Checkpoint(zoo, name, "float32")
    model, clean, corrupted = checkpoint.model(), checkpoint.ids(9, seed=5), checkpoint.ids(9, seed=6)
    errors = [
        abs(found.completeness_error) / abs(found.clean - found.baseline)
        for found in (integrated(model, clean, margin, baseline=corrupted, steps=steps) for steps in (16, 32, 64))
    ]
    assert errors[2] < 1e-3 and errors[1] < errors[0] / 10


def test_integrated_gradients_of_a_value_inside(zoo):
    """Neurons from zeros: the baseline's metric is that of the run without them, and the sum is what they do."""
    checkpoint = Checkpoint(zoo, "gemma", "float32")
    model, ids = checkpoint.model(), checkpoint.ids(9)
    found = integrated(model, ids, margin, value="layers.1.mlp.mlp_neurons")
    with model.trace(ids):
        model.layers[1].mlp.mlp_neurons[:] = 0
        expected = margin(model.logits[:, -1]).item()
    assert found.baseline == pytest.approx(expected, abs=1e-4)
    assert abs(found.completeness_error) < 1e-3 * abs(found.clean - found.baseline)
    queries = integrated(
        model, ids, margin, value="layers.1.self_attn.attention_queries", baseline=checkpoint.ids(9, 3)
    )
    assert queries.attributions.shape == (1, 4, 9, 16)
    torch.testing.assert_close(queries.by_position, queries.attributions.sum((1, 3)))


def test_both_attribute_the_same_to_the_embeddings(zoo):
    model = zoo.model("gemma2")
    found = integrated(model, CLEAN, margin, baseline=CORRUPTED, steps=64)
    patching = attributed(model, CLEAN, CORRUPTED, margin, "layer_input", layers=0, steps=64)
    close(patching.effect[0], found.by_position.sum(0))
    assert float(patching.recovered.sum()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("implementation", ["eager", None])
def test_the_logits_are_a_value_too(zoo, implementation):
    model = zoo.model("mqa", "float32", implementation)
    found = integrated(model, CLEAN, margin, value="logits", steps=1)
    torch.testing.assert_close(found.attributions[:, -1, 7], model(CLEAN)[:, -1, 7].double(), rtol=1e-6, atol=1e-6)
    assert found.completeness_error == pytest.approx(0, abs=1e-4) and (found.attributions != 0).sum() == 4


def test_a_path_that_is_too_coarse_is_told(zoo):
    with pytest.warns(UserWarning, match="more steps than 2") as told:
        integrated(zoo.model("mqa"), "the city", margin, steps=2)
    assert told[0].filename == __file__


# ----------------------------------------------------------------------------------------------------- what is asked


def test_one_way_back_for_all(zoo):
    """Named in any order, with and without the host, and twice under two names."""
    model = zoo.model("gemma4_e2b")
    values = ["mlp_output", "layer_output", "self_attn.attention_keys", "layer_input", "attention_keys"]
    found = attributed(model, CLEAN, CORRUPTED, margin, values)
    assert list(found) == values
    for value in values:
        torch.testing.assert_close(found[value].effect, attributed(model, CLEAN, CORRUPTED, margin, value).effect)
    assert torch.equal(found["layer_input"].effect[1:], found["layer_output"].effect[:-1])
    assert torch.equal(found["attention_keys"].effect, found["self_attn.attention_keys"].effect)
    assert not found["layer_output"].patched.requires_grad


def test_heads_sum_to_the_whole(zoo):
    """Where full blocks have fewer key/value heads, what is missing is NaN."""
    model = zoo.model("gemma4_31b")
    for value in ("attention_keys", "attention_queries", "attention_head_outputs"):
        whole = attributed(model, CLEAN, CORRUPTED, margin, value)
        found = attributed(model, CLEAN, CORRUPTED, margin, value, heads=True)
        torch.testing.assert_close(found.effect.nansum(-1), whole.effect)
        axes = {"attention_keys": "num_kv_heads"}.get(value, "num_heads")
        counts = [getattr(layer, axes) for layer in model.layers]
        assert (~found.patched.isnan()).sum(-1).T.tolist() == [counts] * len(found.positions)


@pytest.mark.filterwarnings("ignore:the attributions sum")
def test_a_padded_row_has_what_it_has_alone(zoo):
    checkpoint = Checkpoint(zoo, "mqa", "float32")
    model, (ids, mask) = checkpoint.model(), checkpoint.padded((9, 5))
    others = torch.where(ids > 2, 402 - ids, ids)
    together = integrated(model, prompt(ids, mask), margin, baseline=prompt(others, mask), steps=4)
    for row, length in enumerate((9, 5)):
        alone = integrated(model, ids[[row], -length:], margin, baseline=others[[row], -length:], steps=4)
        close(together.attributions[row, -length:], alone.attributions[0], 1e-3)
        assert (together.attributions[row, :-length] == 0).all()


def test_a_common_prefix_has_no_effect(zoo):
    """Not even one of rounding, in bfloat16 and without eager, where other kernels compute what is not recorded."""
    model = zoo.model("mqa", "bfloat16", None)
    clean = Checkpoint(zoo, "mqa", "bfloat16").ids(12)
    corrupted = clean.clone()
    corrupted[0, 7] = 5
    for value, found in attributed(model, clean, corrupted, margin, ["layer_output", "mlp_output"]).items():
        assert (found.effect[:, :7] == 0).all() and (found.effect[:, 7] != 0).any(), value


def test_whatever_mode_the_caller_is_in(zoo):
    model = zoo.model("gemma2")
    expected = attributed(model, CLEAN, CORRUPTED, margin).effect
    whole = integrated(model, CLEAN, margin, baseline=CORRUPTED, steps=32).attributions
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(attributed(model, CLEAN, CORRUPTED, margin).effect, expected)
            found = integrated(model, CLEAN, margin, baseline=CORRUPTED, steps=32)
        assert torch.equal(found.attributions, whole)


def test_what_the_caller_trains_is_left_alone(zoo):
    """A probe as the metric, a baseline that requires a gradient."""
    model = zoo.model("mqa")
    probe = torch.nn.Linear(model.vocab_size, 1)
    baseline = torch.zeros(model.hidden_size, requires_grad=True)
    ids = Checkpoint(zoo, "mqa", "float32").ids(6)
    attributed(model, ids, ids.flip(1), lambda logits: probe(logits).sum())
    with pytest.warns(UserWarning):
        integrated(model, ids, lambda logits: probe(logits).sum(), baseline=baseline, steps=2)
    assert probe.weight.grad is None and baseline.grad is None
    assert all(weight.grad is None for weight in model.parameters())


def test_progress(zoo, capsys):
    model = zoo.model("mqa")
    attribution_patching(model, CLEAN, CORRUPTED, margin)
    assert not capsys.readouterr().err
    attribution_patching(model, CLEAN, CORRUPTED, margin, steps=3, batch_size=2)
    assert "3/3" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(values="attention_scores"), "seq axis"),
        (dict(values="mlp_output", heads=True), "none of them of heads"),
        (dict(values=[]), "values is empty"),
        (dict(layers=[]), "layers is empty"),
        (dict(layers=99), "no block 99"),
        (dict(positions=9), "no position 9"),
        (dict(steps=0), "steps=0"),
        (dict(batch_size=0), "batch_size=0"),
    ],
)
def test_what_attribution_patching_refuses(zoo, options, message):
    with pytest.raises(gemloupe.BadOption, match=message):
        attributed(zoo.model("mqa"), CLEAN, CORRUPTED, margin, **options)


def test_values_and_prompts_that_do_not_do(zoo):
    model = zoo.model("gemma4_moe")
    with pytest.raises(gemloupe.BadOption, match="no gradient"):
        attributed(model, CLEAN, CORRUPTED, margin, "expert_indices")
    with pytest.raises(gemloupe.UnknownName):
        attributed(model, CLEAN, CORRUPTED, margin, "layer_outputs")
    with pytest.raises(gemloupe.Absent):
        attributed(model, CLEAN, CORRUPTED, margin, "per_layer_output")
    with pytest.raises(gemloupe.BadPrompt, match="as many"):
        attributed(model, "a", "a b", margin)


@pytest.mark.parametrize("function", [attributed, integrated])
@pytest.mark.parametrize(
    "metric, message",
    [
        (lambda logits: margin(logits).item(), "without a gradient"),
        (lambda logits: margin(logits.detach()), "without a gradient"),
        (lambda logits: logits[:, 7], "one number"),
    ],
)
def test_metrics_that_do_not_do(zoo, function, metric, message):
    prompts = [CLEAN, CORRUPTED] if function is attributed else [CLEAN]
    with pytest.raises(gemloupe.BadValue, match=message):
        function(zoo.model("mqa"), *prompts, metric)


@pytest.mark.parametrize(
    "options, kind, message",
    [
        (dict(value="layers.1.self_attn.attention_scores"), gemloupe.BadOption, "seq axis"),
        (dict(value="input_ids"), gemloupe.BadOption, "no gradient"),
        (dict(value="layer_output"), gemloupe.UnknownName, "layer_output"),
        (dict(steps=0), gemloupe.BadOption, "steps=0"),
        (dict(batch_size=0), gemloupe.BadOption, "batch_size=0"),
        (dict(baseline=torch.zeros(3)), gemloupe.BadValue, "does not broadcast"),
        (dict(baseline="the city"), gemloupe.BadPrompt, "as many"),
        (dict(baseline=["the city of", "a of"]), gemloupe.BadPrompt, "as many"),
    ],
)
def test_what_integrated_gradients_refuses(zoo, options, kind, message):
    with pytest.raises(kind, match=message):
        integrated(zoo.model("mqa"), CLEAN, margin, **options)
