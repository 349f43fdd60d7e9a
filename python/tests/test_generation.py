"""A generation that the body takes pass by pass, and drawn tokens."""

import contextlib
import json
import shutil

import pytest
import torch

from conftest import token_ids
from gemloupe.errors import BadOption, BadPrompt, CannotSkip, OutsideTrace

NAMES = ["mqa", "gemma2", "gemma4_e2b", "gemma4_moe"]


def ids_of(model, length=9, seed=5, rows=1):
    return token_ids(length, model.vocab_size, seed, rows)


@pytest.fixture(params=NAMES)
def model(request, zoo):
    return zoo.model(request.param)


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_every_pass_is_what_a_whole_run_has_there(zoo, name, implementation):
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    streams, logits = [], []
    with model.generate(ids, max_new_tokens=12, eos_token_id=-1) as tracer:
        for step in tracer.iter[:]:
            assert step == len(streams)
            streams.append(model.layers[2].layer_output.save())
            logits.append(model.logits[:, -1].save())
        made = tracer.result
    assert torch.equal(made, model.generate(ids, max_new_tokens=12, eos_token_id=-1))
    assert [s.shape[1] for s in streams] == [9] + [1] * 11
    with model.trace(made[:, :-1]):
        whole = model.layers[2].layer_output.save()
        all_logits = model.logits.save()
    torch.testing.assert_close(torch.cat(streams, 1), whole, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.stack(logits, 1), all_logits[:, 8:], atol=1e-4, rtol=1e-4)


def test_edits_of_all_passes_or_of_one(model):
    ids = ids_of(model)
    vector = torch.randn(model.hidden_size, generator=torch.Generator().manual_seed(1)) * 20
    with model.generate(ids, max_new_tokens=6, eos_token_id=-1) as tracer:
        for _ in tracer.iter[:]:
            model.layers[1].layer_output[:, -1] += vector
        every = tracer.result
    # The same by hand: a whole run of what has been made, with the same positions written.
    made = ids
    for _ in range(6):
        with model.trace(made):
            model.layers[1].layer_output[:, ids.shape[1] - 1 :] += vector
            made = torch.cat([made, model.logits[:, -1].argmax(-1)[:, None].save()], 1)
    assert torch.equal(every, made)

    with model.generate(ids, max_new_tokens=6, eos_token_id=-1) as tracer:
        for step in tracer.iter[2]:
            assert step == 2
            model.logits[:, -1, :] = 0
            model.logits[:, -1, 7] = 50
    later = tracer.result
    assert later[0, ids.shape[1] + 2] == 7
    assert torch.equal(later[:, : ids.shape[1] + 2], model.generate(ids, max_new_tokens=2, eos_token_id=-1))


def test_the_first_pass_needs_no_loop(model):
    ids = ids_of(model)
    with model.generate(ids, max_new_tokens=3, eos_token_id=-1) as tracer:
        prompt = model.layers[0].layer_output.save()
        assert tracer.next() == 1
        first = model.layers[0].layer_output.save()
    assert prompt.shape[1] == 9 and first.shape[1] == 1
    assert tracer.result.shape == (1, 12) and torch.equal(
        tracer.result, model.generate(ids, max_new_tokens=3, eos_token_id=-1)
    )
    with pytest.raises(OutsideTrace, match="over"):
        tracer.next()


def test_probabilities_read_in_a_pass_leave_its_token(model):
    ids = ids_of(model)
    with model.generate(ids, max_new_tokens=4, eos_token_id=-1) as tracer:
        best = [model.next_token_probs.argmax(-1).save() for _ in tracer.iter[:]]
    assert torch.equal(tracer.result[:, ids.shape[1] :], torch.stack(best, 1))


def test_an_edit_of_keys_persists(zoo):
    model = zoo.model("mqa")
    ids = ids_of(model)
    results = []
    for in_place in (True, False):
        with model.generate(ids, max_new_tokens=5, eos_token_id=-1) as tracer:
            attention = model.layers[0].self_attn
            if in_place:
                attention.attention_keys[:, :, -1] = 3
            else:
                keys = attention.attention_keys.clone()
                keys[:, :, -1] = 3
                attention.attention_keys = keys
            tracer.next()
            seen = model.layers[0].self_attn.attention_keys.save()
        assert seen[:, :, -2].eq(3).all()
        results.append(tracer.result)
    assert torch.equal(*results)


def test_an_early_end_loses_nothing(model):
    ids = ids_of(model)
    free = model.generate(ids, max_new_tokens=8, eos_token_id=-1)
    end = free[0, ids.shape[1] + 3].item()
    saved = []
    with model.generate(ids, max_new_tokens=8, eos_token_id=end) as tracer:
        for _ in tracer.iter[:]:
            saved.append(model.layers[0].layer_output.save())
    first = (free[0, ids.shape[1] :] == end).nonzero()[0].item()
    assert tracer.result.shape[1] == ids.shape[1] + first + 1 and len(saved) == first + 1
    assert saved[0].shape[1] == ids.shape[1]


def test_a_batch_and_an_exit_stack(model):
    ids = ids_of(model, rows=3)
    with contextlib.ExitStack() as stack:
        tracer = stack.enter_context(model.generation(ids, max_new_tokens=4, eos_token_id=-1))
        shapes = [tuple(model.layers[0].layer_output.shape) for _ in tracer.iter[:]]
    assert shapes[1] == (3, 1, model.hidden_size)
    assert torch.equal(tracer.result, model.generate(ids, max_new_tokens=4, eos_token_id=-1))


def test_with_iter_is_refused(zoo):
    model = zoo.model("mqa")
    with (
        pytest.raises(OutsideTrace, match="for step in"),
        model.generate(ids_of(model), max_new_tokens=2) as tracer,
        tracer.iter[:],
    ):
        pass


# ------------------------------------------------------------------------------------------------ drawing


def test_a_seed_draws_the_same(model):
    ids = ids_of(model, rows=2)
    draw = lambda seed, **more: model.generate(ids, max_new_tokens=16, eos_token_id=-1, seed=seed, **more)  # noqa: E731
    assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))
    greedy = model.generate(ids, max_new_tokens=16, eos_token_id=-1)
    for only_the_best in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-6}):
        assert torch.equal(draw(3, **only_the_best), greedy)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"repetition_penalty": 1.7},
        {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
    ],
)
def test_the_distribution_is_the_reference_s(zoo, options):
    """Frequencies of many draws against the probabilities that transformers' processors leave."""
    from transformers.generation import logits_process as processors

    model = zoo.model("mqa")
    ids = ids_of(model)
    with model.trace(ids):
        logits = model.logits[:, -1].save()
    made = {
        "repetition_penalty": processors.RepetitionPenaltyLogitsProcessor,
        "temperature": processors.TemperatureLogitsWarper,
        "top_k": processors.TopKLogitsWarper,
        "top_p": processors.TopPLogitsWarper,
        "min_p": processors.MinPLogitsWarper,
    }
    expected = logits
    for name, processor in made.items():
        if name in options:
            expected = processor(options[name])(ids, expected)
    expected = expected.softmax(-1)[0]
    draws = torch.cat(
        [
            model.generate(ids.expand(500, -1), max_new_tokens=1, seed=seed, do_sample=True, **options)
            for seed in range(4)
        ]
    )[:, -1]
    found = torch.bincount(draws, minlength=model.vocab_size) / len(draws)
    assert found[expected == 0].sum() == 0
    assert (found - expected).abs().max() < 0.05


@pytest.mark.parametrize(
    "options, words",
    [
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"top_k": -1}, "top_k must be 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"min_p": 2.0}, "min_p must be from 0 to 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"max_new_tokens": -1}, "max_new_tokens must be 0 or more"),
    ],
)
def test_an_option_that_makes_no_sense(zoo, options, words):
    model = zoo.model("mqa")
    with pytest.raises(BadOption, match=words):
        model.generate(ids_of(model), **options)


def test_texts_that_end(zoo):
    model = zoo.model("mqa")
    free = model.generate_text("the city", max_new_tokens=12, eos_token_id=-1)
    assert isinstance(free, str)
    word = free[len(free) // 2 : len(free) // 2 + 2]
    stopped = model.generate_text("the city", max_new_tokens=12, eos_token_id=-1, stop=word)
    assert free.startswith(stopped) and word in stopped and len(stopped) < len(free)


# ------------------------------------------------------------------------------------------------ passes


def test_passes_are_not_counted_from_the_end(zoo):
    model = zoo.model("mqa")
    with model.generate(ids_of(model), max_new_tokens=3, eos_token_id=-1) as tracer:
        for wanted in (-1, slice(-2, None), slice(None, -1), [0, -1], slice(None, None, 0), 1.5, "all"):
            with pytest.raises(BadOption):
                tracer.iter[wanted]
        assert list(tracer.iter[[0, 2]]) == [0, 2]


def test_right_padding_is_refused(zoo):
    model = zoo.model("mqa")
    ids = ids_of(model, rows=2)
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    with pytest.raises(BadPrompt, match="row 1 .* ends with padding"):
        model.generate(ids, attention_mask=mask)
    given, options = {"input_ids": ids, "attention_mask": mask.flip(1)}, dict(max_new_tokens=4, eos_token_id=[])
    padded = model.generate(given, **options)
    assert torch.equal(padded, model.generate(**given, **options))
    assert torch.equal(padded[1:, 3:], model.generate(ids[1:, 3:], **options))


def test_a_generation_that_is_stopped_or_over(model):
    ids = ids_of(model)
    free = model.generate(ids, max_new_tokens=6, eos_token_id=-1)
    with model.generate(ids, max_new_tokens=6, eos_token_id=-1) as tracer:
        for step in tracer.iter[:]:
            if step == 2:
                tracer.stop()
    assert torch.equal(tracer.result, free[:, :-4])
    with model.generate(ids, max_new_tokens=2, eos_token_id=-1) as tracer:
        for _ in tracer.iter[:]:
            pass
        assert torch.equal(model.generator.output, free[:, :-4])
        with pytest.raises(OutsideTrace):
            model.layers[0].layer_output.save()
        tracer.stop()
    with model.generate(ids, max_new_tokens=0) as tracer:
        with pytest.raises(OutsideTrace):
            model.layers[0].layer_output.save()
        assert list(tracer.iter[:]) == []
    assert torch.equal(tracer.result, ids)
    with pytest.raises(OutsideTrace, match="one pass"), model.trace(ids):
        model.generator.output.save()


def test_logits_of_a_pass_that_is_over(zoo):
    model = zoo.model("mqa", "float32", None)
    with model.generate(ids_of(model), max_new_tokens=3, eos_token_id=-1) as tracer:
        rows = model.logits
        tracer.next()
        with pytest.raises(OutsideTrace):
            rows.save()
        assert model.logits.save().shape[1] == 1


def test_ids_written_in_a_pass_are_that_pass_s(model):
    ids = ids_of(model)
    results = []
    for in_place in (True, False):
        with model.generate(ids, max_new_tokens=3, eos_token_id=-1) as tracer:
            if in_place:
                model.input_ids[:, 3] = 5
            else:
                changed = model.input_ids.clone()
                changed[:, 3] = 5
                model.input_ids = changed
        results.append(tracer.result)
    assert torch.equal(*results) and torch.equal(results[0][:, :9], ids)


def test_what_a_borrower_is_given_stays_its_own(zoo):
    """Gemma 4 E2B: in a generation as in a run of one pass, whichever way it is written."""
    model = zoo.model("gemma4_e2b")
    ids = ids_of(model, 12)
    borrowers = [i for i, layer in enumerate(model.layers) if not hasattr(layer.self_attn._module, "k_proj_weight")][
        -3:
    ]
    for layer in borrowers:
        for value in ("attention_keys", "attention_values"):
            results = []
            for in_place in (True, False):
                with model.generate(ids, max_new_tokens=6, eos_token_id=-1) as tracer:
                    live = getattr(model.layers[layer].self_attn, value)
                    if in_place:
                        live[:, :, -1] = 3
                    else:
                        live = live.clone()
                        live[:, :, -1] = 3
                        setattr(model.layers[layer].self_attn, value, live)
                    tracer.next()
                    for other in range(layer + 1, model.num_layers):
                        seen = getattr(model.layers[other].self_attn, value)
                        assert not seen.eq(3).any(), (layer, other, value)
                results.append(tracer.result)
            assert torch.equal(*results)


def test_a_block_skipped_in_some_passes(zoo):
    model = zoo.model("mqa")
    ids = ids_of(model)
    with (
        pytest.raises(CannotSkip, match="earlier pass"),
        model.generate(ids, max_new_tokens=3, eos_token_id=-1) as tracer,
    ):
        model.skip_layer(1)
        tracer.next()
        model.logits.save()
    with model.generate(ids, max_new_tokens=3, eos_token_id=-1) as tracer:
        for _ in tracer.iter[:]:
            model.skip_layer(1)
    assert tracer.result.shape == (1, 12)


def test_gradients_through_several_passes(model):
    vector = torch.zeros(model.hidden_size, requires_grad=True)
    ids, losses = ids_of(model), []
    with model.generate(ids, max_new_tokens=4, eos_token_id=-1, do_sample=False) as tracer:
        for _ in tracer.iter[:]:
            model.layers[1].layer_output[:, -1] += vector
            losses.append(model.logits[:, -1].log_softmax(-1)[0, 5])
    sum(losses).backward()
    # The same in one run of all the tokens.
    whole = torch.zeros(model.hidden_size, requires_grad=True)
    with model.trace(tracer.result[:, :-1]):
        model.layers[1].layer_output[:, 8:] += whole
        model.logits[0, 8:].log_softmax(-1)[:, 5].sum().backward()
    torch.testing.assert_close(vector.grad, whole.grad, atol=1e-4, rtol=1e-3)


# ------------------------------------------------------------------------------------------------ what the checkpoint says


def test_defaults_of_generation_config(zoo, tmp_path):
    from gemloupe import StandardizedTransformer

    folder = tmp_path / "model"
    shutil.copytree(zoo.folder("mqa"), folder)
    config = {"do_sample": False, "temperature": 0.0}
    (folder / "generation_config.json").write_text(json.dumps(config))
    plain = StandardizedTransformer(folder, attn_implementation="eager")
    assert torch.equal(plain.generate(ids_of(plain)), plain.generate(ids_of(plain)))
    config = {"do_sample": True, "top_k": 1, "max_new_tokens": 3, "pad_token_id": 7, "eos_token_id": [1]}
    (folder / "generation_config.json").write_text(json.dumps(config))
    model = StandardizedTransformer(folder, attn_implementation="eager")
    ids = ids_of(model)
    greedy = model.generate(ids, do_sample=False)
    assert torch.equal(model.generate(ids), greedy) and greedy.shape[1] <= 12
    drawn = model.generate(ids.expand(64, -1), top_k=50, temperature=5.0, seed=1, max_new_tokens=1)
    assert len(drawn[:, -1].unique()) > 1
    end = model.generate(ids[:1], max_new_tokens=2, do_sample=False, eos_token_id=[])[0, -2].item()
    batch = torch.cat([ids, ids_of(model, seed=9)])
    made = model.generate(batch, do_sample=False, eos_token_id=end)
    first = (made[0, 9:] == end).nonzero()[0].item()
    assert made.shape[1] == 10 + first or made[0, 10 + first :].eq(7).all()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"max_length": 5}, "max_new_tokens"),
        ({"num_beams": 2}, "beam"),
        ({"temprature": 1.0}, "no option 'temprature'"),
        ({"temperature": "hot"}, "must be a number"),
        ({"max_new_tokens": 2.5}, "whole number"),
        ({"seed": -1}, "seed must be from 0"),
        ({"do_sample": False, "top_k": 3}, "say how to draw"),
        ({"input_ids": torch.ones(1, 2).long()}, "one of them"),
        ({"do_sample": "yes"}, "do_sample must be"),
        ({"streamer": 5}, "streamer"),
        ({"stop": 5}, "stop must be"),
        ({"stop": ""}, "stop must be"),
        ({"eos_token_id": "x"}, "eos_token_id must be"),
        ({"eos_token_id": 1.5}, "eos_token_id must be"),
        ({"max_new_tokens": 2**70}, "max_new_tokens must be"),
        ({"temperature": 1e-40}, "temperature must be above 0"),
    ],
)
def test_options_that_are_none(zoo, options, words):
    model = zoo.model("mqa")
    with pytest.raises(BadOption, match=words):
        model.generate(ids_of(model), **options)


def test_a_list_of_one_text(zoo):
    model = zoo.model("mqa")
    assert isinstance(model.generate_text(["the city"], max_new_tokens=2), list)
