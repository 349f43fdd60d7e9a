"""Gradients that are read and changed on the way back, and values that are made leaves."""

import pytest
import torch

from conftest import token_ids
from gemloupe.errors import BadValue, OutOfOrder

NAMES = ["mqa", "gemma", "gemma2", "gemma4_e2b", "gemma4_moe"]


def ids_of(model, length=9, seed=5):
    return token_ids(length, model.vocab_size, seed)


def loss_of(logits):
    return (logits[:, -1, 7] - logits[:, -2, 11]).sum()


@pytest.fixture(params=NAMES)
def model(request, zoo):
    return zoo.model(request.param)


def halve_first(gradient):
    gradient = gradient.clone()
    gradient[:, 0] *= 0.5
    return gradient


def reference_gradients(reference, ids, edits, wanted):
    """Of the outputs of modules, where hooks change those of others."""
    kept, handles = {}, []

    def keep(path):
        def hook(module, args, output):
            tensor = output[0] if isinstance(output, tuple) else output
            if not tensor.requires_grad:
                tensor.requires_grad_(True)
            if path in edits:
                tensor.register_hook(edits[path])
            if path in wanted:
                tensor.register_hook(lambda gradient: kept.__setitem__(path, gradient))

        return hook

    try:
        for path in {"model.embed_tokens", *edits, *wanted}:
            handles.append(reference.model.get_submodule(path).register_forward_hook(keep(path)))
        loss_of(reference.model(input_ids=ids, use_cache=False).logits).backward()
    finally:
        for handle in handles:
            handle.remove()
        reference.model.zero_grad()
    return kept


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_reaches_what_lies_before(zoo, name):
    model, reference = zoo.model(name), zoo.reference(name)
    ids = ids_of(model)
    edits = {"model.layers.3": halve_first, "model.layers.2.mlp": torch.zeros_like}
    wanted = ["model.layers.1", "model.layers.0.self_attn", "model.embed_tokens"]
    expected = reference_gradients(reference, ids, edits, wanted)
    with model.trace(ids, grad=True) as tracer:
        embeddings = model.embed_tokens.output
        attention = model.layers[0].self_attn.output[0]
        early = model.layers[1].layer_output
        mlp = model.layers[2].mlp.output
        part, whole = early[:, -1].save(), early.save()
        late = model.layers[3].layer_output
        with tracer.backward(loss_of(model.logits)) as gradients:
            gradients[late][:, 0] *= 0.5
            gradients[mlp] = torch.zeros_like(mlp)
            found = [gradients[early].clone(), gradients[attention].clone(), gradients[embeddings].clone()]
    for path, gradient, value in zip(wanted, found, (early, attention, embeddings), strict=True):
        scale = expected[path].abs().max()
        assert scale > 0
        assert (gradient - expected[path]).abs().max() <= 1e-5 * scale, path
        assert torch.equal(value.grad, gradient), "and .grad has it when the block has ended"
    assert mlp.grad.eq(0).all()
    assert torch.equal(part.grad, early.grad[:, -1])
    assert torch.equal(whole.grad, early.grad), "once, however often gradients were asked for"


@pytest.mark.parametrize("name", ["mqa", "gemma2", "gemma4_moe"])  # of E2B borrowed keys pass a block by
def test_augmented_assignment_and_several_losses(zoo, name):
    model = zoo.model(name)
    ids = ids_of(model)
    with model.trace(ids, grad=True) as tracer:
        early, late = model.layers[0].layer_output, model.layers[2].layer_output
        logits = model.logits
        with tracer.backward(logits[0, -1, 3], retain_graph=True) as gradients:
            gradients[late] *= 2
            doubled = gradients[early].clone()
        early.grad = late.grad = None
        logits[0, -1, 3].backward(retain_graph=True)
        single = early.grad.clone()
        logits[0, -1, 4].backward()
    torch.testing.assert_close(doubled, 2 * single)
    assert not torch.equal(early.grad, single)


def test_a_change_that_comes_too_late(model):
    for how in ("in place", "assigned"):
        with model.trace(ids_of(model), grad=True) as tracer:
            early, late = model.layers[0].layer_output, model.layers[2].layer_output
            with (
                pytest.raises(OutOfOrder, match="reverse order"),
                tracer.backward(loss_of(model.logits)) as gradients,
            ):
                gradients[early].sum()
                if how == "in place":
                    gradients[late][:] = 0
                else:
                    gradients[late] = torch.zeros_like(late)
            assert early.grad is None


def test_what_has_no_gradient(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model), grad=True) as tracer:
        ids, stream = model.input_ids, model.layers[0].layer_output
        last = model.layers[-1].layer_output
        with tracer.backward(stream.sum(), retain_graph=True) as gradients:
            for value in (ids, last, 3):
                with pytest.raises(BadValue):
                    gradients[value]
            with pytest.raises(BadValue, match="shape"):
                gradients[stream] = torch.zeros(2)


def test_an_error_in_the_block_runs_nothing(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model), grad=True) as tracer:
        stream = model.layers[0].layer_output
        loss = loss_of(model.logits)
        with pytest.raises(ZeroDivisionError), tracer.backward(loss) as gradients:
            gradients[stream][:] = 0
            raise ZeroDivisionError
        assert stream.grad is None
        loss.backward()
        assert stream.grad.abs().sum() > 0


VALUES = [
    "token_embeddings",
    "layers.1.attention_norm_output",
    "layers.1.self_attn.attention_queries",
    "layers.1.self_attn.attention_keys",
    "layers.1.self_attn.attention_values",
    "layers.1.self_attn.attention_scores",
    "layers.1.self_attn.attention_probabilities",
    "layers.1.self_attn.attention_head_outputs",
    "layers.1.self_attn.attention_premix",
    "layers.1.self_attn.q_proj.output",
    "layers.1.mlp.mlp_neurons",
    "layers.2.layer_input",
]


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_is_made_a_leaf(zoo, name, implementation):
    """`requires_grad_()` of a value in a plain trace, also of one that is a view of what the run holds."""
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    with model.trace(ids, grad=True) as tracer:
        values = {
            value: tracer.read(value)
            for value in sorted(VALUES, key=lambda v: model._row_table[model._row(v)].position)
        }
        loss_of(model.logits).backward()
    for value, recorded in values.items():
        with model.trace(ids) as tracer:
            leaf = tracer.read(value).requires_grad_(True)
            loss_of(model.logits).backward()
        assert leaf.grad is not None, value
        scale = recorded.grad.abs().max()
        assert (leaf.grad - recorded.grad).abs().max() <= 1e-5 * scale, value


def test_two_leaves_at_one_place(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model)):
        attention = model.layers[1].self_attn
        queries = attention.attention_queries.requires_grad_()
        keys = attention.attention_keys.requires_grad_()
        loss_of(model.logits).backward()
    assert queries.grad.abs().sum() > 0 and keys.grad.abs().sum() > 0
