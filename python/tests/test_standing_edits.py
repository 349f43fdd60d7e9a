"""`model.edit()`: what is done to values there, every run of the edited model does."""

import gc
import weakref

import pytest
import torch

from conftest import token_ids
from gemloupe.errors import BadOption, BadValue, OutsideTrace, ReadOnly, UnknownName
from helpers import logits_of

NAMES = ["mqa", "gemma", "gemma2", "gemma4_e2b", "gemma4_moe"]


def ids_of(model, length=9, seed=5):
    return token_ids(length, model.vocab_size, seed)


@pytest.fixture(params=NAMES)
def model(request, zoo):
    return zoo.model(request.param)


def vector_of(model):
    return torch.randn(model.hidden_size, generator=torch.Generator().manual_seed(1)) * 5


def halve(live):
    return live * 0.5


def recorded(model):
    """An edited model, and the same edits for the body of a trace."""
    vector = vector_of(model)
    with model.edit() as edited:
        model.layers[0].mlp.mlp_output *= 0.25
        edited.layers[1].layer_output[:, -1] += vector
        model.layers[1].self_attn.attention_premix[:, :, [0, 1]] *= 3
        model.layers[2].self_attn.attention_output.apply(halve)
        model.layers[2].mlp.input[:, 0].zero_()
        model.layers[3].self_attn.output[0][..., :2] = 0
        model.steer(3, vector, factor=2)
        model.logits[:, :, 7] = 3.0

    def body(model):
        model.layers[0].mlp.mlp_output *= 0.25
        model.layers[1].self_attn.attention_premix[:, :, [0, 1]] *= 3
        model.layers[1].layer_output[:, -1] += vector
        model.layers[2].self_attn.attention_output = halve(model.layers[2].self_attn.attention_output)
        model.layers[2].mlp.input[:, 0].zero_()
        model.layers[3].self_attn.output[0][..., :2] = 0
        model.steer(3, vector, factor=2)
        model.logits[:, :, 7] = 3.0

    return edited, body


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_every_run_has_them(zoo, name, implementation):
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    clean = logits_of(model, ids)
    edited, body = recorded(model)
    with model.trace(ids):
        body(model)
        expected = model.logits.save()
    assert not torch.equal(expected, clean)
    for _ in range(2):
        assert torch.equal(logits_of(edited, ids), expected)
    assert torch.equal(edited(ids), expected)
    assert torch.equal(logits_of(model, ids), clean), "the model itself has none"
    with edited.trace(ids):
        last = edited.logits[:, -1].save()
        assert torch.equal(last, expected[:, -1])


def test_a_body_sees_what_they_leave(model):
    with model.edit() as edited:
        model.layers[1].layer_output[:] = 2
    with edited.trace(ids_of(model)):
        stream = edited.layers[1].layer_output
        assert stream.eq(2).all()
        stream *= 2
        assert edited.layers[2].layer_input.eq(4).all()


def test_each_pass_of_a_generation(model):
    ids, vector = ids_of(model), vector_of(model) * 4
    with model.edit() as edited:
        model.layers[1].layer_output[:, -1] += vector
    with model.generate(ids, max_new_tokens=6, eos_token_id=-1) as tracer:
        for _ in tracer.iter[:]:
            model.layers[1].layer_output[:, -1] += vector
    assert torch.equal(edited.generate(ids, max_new_tokens=6, eos_token_id=-1), tracer.result)
    assert not torch.equal(model.generate(ids, max_new_tokens=6, eos_token_id=-1), tracer.result)


def test_invokes_batches_and_points(model):
    ids = ids_of(model)
    edited, body = recorded(model)
    expected = logits_of(edited, ids)
    with edited.trace() as tracer, tracer.invoke(ids):
        assert torch.equal(edited.logits.save(), expected)
    for block in (0, 2):
        with edited.trace(ids) as tracer:
            point = tracer.point(f"layers.{block}.layer_output")
        with edited.trace(start_from=point):
            assert torch.equal(edited.logits.save(), expected)


def test_they_are_listed_and_undone(zoo):
    model = zoo.model("mqa")
    ids, vector = ids_of(model), vector_of(model)
    with model.edit() as one:
        model.layers[1].layer_output[:, -1] += vector
    with one.edit() as two:
        two.layers[2].mlp.mlp_output *= 0
    assert [edit.text for edit in two.edits] == [
        f"layers.1.layer_output[:, -1] += tensor[{model.hidden_size}]",
        "layers.2.mlp.mlp_output *= 0",
    ]
    assert "test_standing_edits.py" in two.edits[0].where and str(two.edits[1]) == two.edits[1].text
    assert two.undo().text == "layers.2.mlp.mlp_output *= 0"
    assert torch.equal(logits_of(two, ids), logits_of(one, ids)) and len(one.edits) == 1
    two.undo(two.edits[0])
    assert torch.equal(logits_of(two, ids), logits_of(model, ids))
    with pytest.raises(BadOption):
        two.undo()
    one.clear_edits()
    assert one.edits == () and torch.equal(logits_of(one, ids), logits_of(model, ids))


def test_in_place_and_weights_are_shared(zoo, tmp_path):
    from gemloupe import StandardizedTransformer

    model = StandardizedTransformer(zoo.folder("mqa"))
    clean = logits_of(model, ids_of(model))
    with model.edit(inplace=True) as same:
        model.layers[1].mlp.mlp_output *= 0
    assert same is model and len(model.edits) == 1
    assert not torch.equal(logits_of(model, ids_of(model)), clean)
    with model.edit() as edited:
        edited.layers[0].mlp.mlp_output *= 2
    assert edited.embed_tokens.weight.data_ptr() == model.embed_tokens.weight.data_ptr()


def test_a_vector_in_a_standing_edit_trains(zoo):
    model = zoo.model("mqa")
    vector = torch.zeros(model.hidden_size, requires_grad=True)
    with model.edit() as edited:
        model.layers[2].layer_output[:, -1] += vector
    optimiser = torch.optim.Adam([vector], lr=0.3)
    losses = []
    for _ in range(15):
        optimiser.zero_grad()
        with edited.trace(ids_of(model)):
            loss = -edited.logits[:, -1].log_softmax(-1)[0, 5]
            loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1


USES = {
    "save": lambda model: model.layers[0].layer_output.save(),
    "add": lambda model: model.layers[0].layer_output + 1,
    "shape": lambda model: model.layers[0].layer_output.shape,
    "torch": lambda model: torch.relu(model.layers[0].layer_output),
    "bool": lambda model: bool(model.layers[0].layer_output),
    "another value": lambda model: setattr(model.layers[1], "layer_output", model.layers[0].layer_output),
    "a part of another": lambda model: model.layers[1].layer_output.__setitem__(0, model.layers[0].layer_output),
    "skip": lambda model: model.layers[1].skip(torch.zeros(1)),
    "skip_layer": lambda model: model.skip_layer(1),
}


@pytest.mark.parametrize("use", USES)
def test_what_needs_a_run_is_refused(zoo, use):
    model = zoo.model("mqa")
    with pytest.raises(OutsideTrace, match=r"edit\(\)"), model.edit():
        USES[use](model)


def test_what_is_no_edit(zoo):
    model = zoo.model("mqa")
    with pytest.raises(UnknownName), model.edit() as edited:
        model.layers[0].mlp_outputt *= 2
    with pytest.raises(ReadOnly), model.edit() as edited:
        model.next_token_probs[:] = 2
    with pytest.raises(BadValue, match=r"\[:\] = number"), model.edit() as edited:
        model.layers[0].layer_output = 0
    with model.edit() as edited:
        edited.layers[0].layer_output = torch.zeros(1, 9, model.hidden_size)
    logits_of(edited, ids_of(model))
    with pytest.raises(BadValue, match="has the shape") as raised:
        logits_of(edited, ids_of(model, 8))
    assert "recorded at line" in raised.value.__notes__[0]
    with model.edit() as edited:
        edited.layers[0].layer_output.apply(lambda live: 3)
    with pytest.raises(BadValue, match="must give a tensor"):
        logits_of(edited, ids_of(model))


def test_an_error_in_the_body_keeps_none(zoo):
    model = zoo.model("mqa")
    with pytest.raises(ZeroDivisionError), model.edit(inplace=True):
        model.layers[0].layer_output *= 2
        raise ZeroDivisionError
    assert model.edits == ()


def test_an_edit_inside_a_skipped_block_is_refused(zoo):
    from gemloupe.errors import NotInThisRun

    model = zoo.model("mqa")
    with model.edit() as edited:
        model.layers[1].mlp.mlp_output *= 0
    with pytest.raises(NotInThisRun, match="skipped"), edited.trace(ids_of(model)):
        edited.skip_layer(1)
        edited.logits.save()


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_edits_of_keys_are_made_once_a_pass(zoo, name, implementation):
    """As in a whole run of what has been made, whatever the cache keeps."""
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    with model.edit() as edited:
        model.layers[2].self_attn.attention_keys *= 2
        model.layers[1].self_attn.attention_values.apply(lambda live: live + 0.5)
    made = ids
    for _ in range(5):
        made = torch.cat([made, edited(made)[:, -1].argmax(-1)[:, None]], 1)
    assert torch.equal(edited.generate(ids, max_new_tokens=5, eos_token_id=[], do_sample=False), made)


def test_a_model_that_is_dropped_is_gone(zoo):
    model = zoo.model("mqa")
    with model.edit() as edited:
        model.layers[2].layer_output = torch.zeros(1, 9, model.hidden_size)
        model.layers[1].layer_output.apply(lambda live: live * edited.num_layers)  # noqa: F821
    logits_of(edited, ids_of(model))
    gone = weakref.ref(edited)
    del edited
    gc.collect()
    assert gone() is None


def test_small_mistakes(zoo):
    model = zoo.model("mqa", "float32", None)
    with model.edit() as edited:
        model.layers[2].self_attn.output[1][:] = 0
    with pytest.raises(BadValue, match="not made in this run"):
        logits_of(edited, ids_of(model))
    with pytest.raises(BadValue, match="takes a function"), model.edit():
        model.layers[2].layer_output.apply(5)
    session = model.edit()
    for _ in range(2):
        with session as edited:
            model.layers[1].mlp.mlp_output *= 2
    assert len(edited.edits) == 2


def test_a_steered_vector_trains_and_positions_of_a_prompt(zoo):
    model = zoo.model("mqa")
    vector = torch.zeros(model.hidden_size, requires_grad=True)
    with model.edit() as edited:
        model.steer(2, vector, factor=2, token_positions=-1)
    losses = []
    optimiser = torch.optim.Adam([vector], lr=0.3)
    for _ in range(15):
        optimiser.zero_grad()
        with edited.trace(ids_of(model)):
            loss = -edited.logits[:, -1].log_softmax(-1)[0, 5]
            loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1
    with model.edit() as edited:
        model.layers[2].layer_output[:, 2] += vector.detach()
    edited(ids_of(model))
    with pytest.raises(BadValue, match="one position each"):
        edited.generate(ids_of(model), max_new_tokens=3, do_sample=False, eos_token_id=[])


def test_names_of_other_libraries(zoo):
    model = zoo.model("mqa")
    for name in ("run_with_cache", "cfg", "blocks", "session"):
        with pytest.raises(UnknownName, match="coming-from"):
            getattr(model, name)
