"""Gradients of any value, equal to the reference's autograd."""

import pytest
import torch
from torch.autograd import forward_ad

import gemloupe
from conftest import token_ids
from reference.bits import assert_equal_bits

NAMES = ["mqa", "gemma", "gemma2", "gemma4_e2b", "gemma4_moe"]


def ids_of(model, length=9, seed=5):
    return token_ids(length, model.vocab_size, seed)


def reference_gradients(reference, ids, paths):
    """Of the loss below with respect to modules' outputs, by hooks."""
    kept = {}

    def keep(name):
        def hook(module, args, output):
            tensor = output[0] if isinstance(output, tuple) else output
            if not tensor.requires_grad:
                tensor.requires_grad_(True)
            tensor.retain_grad()
            kept[name] = tensor

        return hook

    handles = [reference.model.get_submodule(path).register_forward_hook(keep(path)) for path in paths]
    try:
        logits = reference.model(input_ids=ids, use_cache=False).logits
        loss_of(logits).backward()
    finally:
        for handle in handles:
            handle.remove()
        reference.model.zero_grad()
    return {path: tensor.grad for path, tensor in kept.items()}


def loss_of(logits):
    return (logits[:, -1, 7] - logits[:, -2, 11]).sum()


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_module_outputs(zoo, name, implementation):
    model, reference = zoo.model(name, "float32", implementation), zoo.reference(name)
    ids = ids_of(model)
    paths = ["model.embed_tokens"]
    for block in (0, 2):
        paths += [f"model.layers.{block}.{part}" for part in ("input_layernorm", "self_attn", "mlp.act_fn", "mlp")]
        paths.append(f"model.layers.{block}")
    expected = reference_gradients(reference, ids, paths)
    saved = {}
    with model.trace(ids, grad=True) as tracer:
        for path in paths:
            name = path.removeprefix("model.") + (".output.0" if path.endswith("self_attn") else ".output")
            saved[path] = tracer.read(name).save()
        loss_of(model.logits).backward()
    for path, gradient in expected.items():
        scale = gradient.abs().max()
        assert (saved[path].grad - gradient).abs().max() <= 1e-5 * scale, path
    assert all(weight.grad is None for weight in model._module.parameters())


def test_every_value_has_a_gradient(zoo):
    model = zoo.model("gemma4_moe")
    saved = {}
    with model.trace(ids_of(model), grad=True) as tracer:
        for name in model.value_names():
            if name in ("input_ids", "attention_mask", "next_token_probs", "logits", "lm_head_output"):
                continue
            if not name.endswith("expert_indices"):
                saved[name] = tracer.read(name).save()
        loss_of(model.logits).backward()
    missing = [name for name, value in saved.items() if value.grad is None]
    assert not missing
    assert all(value.grad.isfinite().all() for value in saved.values())


def test_a_gradient_is_the_slope(zoo):
    model = zoo.model("gemma2")
    ids = ids_of(model)
    names = ["layers.1.layer_output", "layers.1.self_attn.attention_probabilities", "layers.2.mlp.mlp_neurons"]
    for name in names:
        with model.trace(ids, grad=True) as tracer:
            value = tracer.read(name).save()
            loss_of(model.logits).backward()
        direction = torch.randn(value.shape, generator=torch.Generator().manual_seed(2))
        slopes = []
        for sign in (1, -1):
            with model.trace(ids) as tracer:
                tracer.write(name, tracer.read(name) + sign * 1e-3 * direction)
                slopes.append(loss_of(model.logits.save()))
        slope = (slopes[0] - slopes[1]) / 2e-3
        torch.testing.assert_close(slope, (value.grad * direction).sum(), atol=2e-2, rtol=2e-2)


def test_edits_and_constants_let_gradients_through(zoo):
    model = zoo.model("mqa")
    ids = ids_of(model)
    with model.trace(ids, grad=True):
        early = model.layers[0].layer_output.save()
        pattern = model.layers[1].self_attn.attention_probabilities
        pattern[..., 0] = 0  # in place, of what the softmax keeps
        model.layers[2].mlp.mlp_output *= 0.5
        model.layers[3].self_attn.attention_output[:, 0] = 1.0
        loss_of(model.logits).backward()
    assert early.grad.abs().sum() > 0


def test_several_losses(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model), grad=True):
        stream = model.layers[1].layer_output.save()
        logits = model.logits.save()
        logits[0, -1, 3].backward(retain_graph=True)
        first = stream.grad.clone()
        logits[0, -1, 4].backward()
    assert (stream.grad - first).abs().sum() > 0 and first.abs().sum() > 0


def test_after_the_block(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model), grad=True):
        stream = model.layers[1].layer_output.save()
        logits = model.logits.save()
    loss_of(logits).backward()
    assert stream.grad.abs().sum() > 0


def test_the_forward_is_the_same(zoo):
    for name in NAMES:
        model = zoo.model(name)
        ids = ids_of(model)
        with model.trace(ids, grad=True):
            logits = model.logits.save()
        assert_equal_bits(logits.detach(), model(ids), name)


def test_a_vector_inside_the_run_trains(zoo):
    model = zoo.model("mqa")
    ids = ids_of(model)
    vector = torch.zeros(model.hidden_size, requires_grad=True)
    optimiser = torch.optim.Adam([vector], lr=0.3)
    losses = []
    for _ in range(25):
        optimiser.zero_grad()
        with model.trace(ids):
            model.layers[2].layer_output[:, -1] += vector
            loss = -model.logits[:, -1].log_softmax(-1)[0, 5]
            loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1


def test_an_integer_value_and_a_plain_trace_have_none(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model), grad=True):
        assert not model.input_ids.requires_grad
    with model.trace(ids_of(model)):
        assert not model.layers[0].layer_output.requires_grad


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_a_part_that_was_saved_has_its_gradient(zoo, name, implementation):
    model = zoo.model(name, "float32", implementation)
    names = [
        "layers.1.self_attn.attention_queries",
        "layers.1.layer_output",
        "layers.2.self_attn.attention_probabilities",
    ]
    with model.trace(ids_of(model), grad=True) as tracer:
        wholes = [tracer.read(value) for value in names]
        parts = [whole[:, -1].save() for whole in wholes] + [whole[..., 2:, 1].save() for whole in wholes]
        loss = loss_of(model.logits)
        probs = model.next_token_probs
        loss.backward(retain_graph=True)
        kept = [whole.grad.clone() for whole in wholes]
        probs[0, 5].backward()
    for part, whole in zip(parts, [w.grad[:, -1] for w in wholes] + [w.grad[..., 2:, 1] for w in wholes], strict=True):
        torch.testing.assert_close(part.grad, whole)
        assert part.grad.abs().sum() > 0
    assert probs.grad[0, 5] == 1 and not any(map(torch.equal, kept, (whole.grad for whole in wholes)))


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_an_edit_in_place_behind_what_trains(zoo, name, implementation):
    """In a plain trace as in one that records: a step keeps its own result for the way back."""
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    for value in (
        "attention_queries",
        "attention_keys",
        "attention_probabilities",
        "attention_premix",
        "attention_output",
    ):
        grads = []
        for records in (False, True):
            vector = torch.zeros(model.hidden_size, requires_grad=True)
            with model.trace(ids, grad=records):
                model.layers[0].layer_output[:, -1] += vector
                getattr(model.layers[1].self_attn, value)[:, :, 2] = 0
                loss_of(model.logits).backward()
            grads.append(vector.grad)
        # What lies before the first tensor that records runs on our own kernels where gradients are not asked for.
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)
        assert grads[0].abs().sum() > 0, value


def test_whatever_is_saved_has_its_gradient_once(zoo):
    """Held or not, a part or the whole, used in the loss or not; a later edit in place is none of the snapshot's."""
    model = zoo.model("mqa")
    ids = ids_of(model)
    with model.trace(ids, grad=True):
        value = model.layers[5].layer_output
        held, part, again = value.save(), value[:, -1].save(), gemloupe.save(value)
        before = held.detach().clone()
        inside = model.layers[6].self_attn.output.save()[0]
        value_after = model.layers[6].layer_output
        kept = value_after[:, -1].save()
        value_after[:, 0] = 0
        loss = (part * 3).sum() + held.sum() + loss_of(model.logits)
        loss.backward()
    assert torch.equal(held, before)
    for found in (held, again):
        torch.testing.assert_close(found.grad, value.grad)
    torch.testing.assert_close(part.grad, value.grad[:, -1])
    assert inside.grad.abs().sum() > 0 and kept.grad.abs().sum() > 0
    with model.trace(ids, grad=True):
        part = model.layers[5].layer_output[:, -1].save()
        part.sum().backward()
    assert part.grad.eq(1).all()


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_inputs_of_modules(zoo, name, implementation):
    """Recorded, and made leaves, also where a module sees its input through a view; assigned ones too."""
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    for path in ("self_attn.q_proj", "self_attn.o_proj", "mlp", "mlp.down_proj"):
        port = f"layers.2.{path}.input"
        with model.trace(ids, grad=True) as tracer:
            recorded = tracer.read(port)
            loss_of(model.logits).backward()
        with model.trace(ids) as tracer:
            leaf = tracer.read(port).requires_grad_()
            loss_of(model.logits).backward()
        scale = recorded.grad.abs().max()
        assert scale > 0 and (leaf.grad - recorded.grad).abs().max() <= 1e-5 * scale, port
    with model.trace(ids, grad=True) as tracer:
        tracer.write("layers.2.mlp.input", tracer.read("layers.2.mlp.input") * 2)
        assigned = tracer.read("layers.2.mlp.input")
        loss_of(model.logits).backward()
    assert assigned.grad.abs().sum() > 0


def test_what_the_caller_trains_keeps_its_gradient(zoo, tmp_path):
    model = gemloupe.StandardizedTransformer(zoo.folder("mqa"), attn_implementation="eager")
    vector = torch.zeros(model.hidden_size, requires_grad=True)
    with model.trace(ids_of(model), grad=True):
        model.steer([1, 2], vector, factor=2)
        loss_of(model.logits).backward()
    assert vector.grad.abs().sum() > 0
    table, grads = model.embed_tokens.weight, []
    table.requires_grad_()
    for records in (False, True):
        table.grad = None
        with model.trace(ids_of(model), grad=records):
            loss_of(model.logits).backward()
        grads.append(table.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("implementation", ["eager", None])
def test_forward_mode(zoo, implementation):
    """A tangent goes through a run as a gradient comes back."""
    model = gemloupe.StandardizedTransformer(zoo.folder("mqa"), attn_implementation=implementation)
    ids = ids_of(model)

    def scaled(factor):
        with model.trace(ids):
            model.layers[1].layer_output = model.layers[1].layer_output * factor
            return model.logits[0, -1, 3]

    factor = torch.tensor(1.3, requires_grad=True)
    (expected,) = torch.autograd.grad(scaled(factor), factor)
    with forward_ad.dual_level():
        out = scaled(forward_ad.make_dual(factor.detach(), torch.tensor(1.0)))
        assert torch.allclose(forward_ad.unpack_dual(out).tangent, expected, rtol=1e-4)
    with pytest.raises(gemloupe.errors.BadPrompt, match=r"torch\.func\.grad"):
        torch.func.grad(scaled)(factor)
