"""Several prompts in one trace, values collected by name, runs that start in the middle."""

import pytest
import torch
from safetensors.torch import load_file

from conftest import token_ids
from gemloupe.errors import BadOption, BadValue, CannotWrite, OutOfOrder, OutsideTrace, UnknownName
from helpers import logits_of

NAMES = ["mqa", "gemma2", "gemma4_e2b", "gemma4_moe"]


def ids_of(model, length=9, seed=5):
    return token_ids(length, model.vocab_size, seed)


@pytest.fixture(params=NAMES)
def model(request, zoo):
    return zoo.model(request.param)


def test_values_flow_from_one_invoke_to_the_next(model):
    clean, corrupted = ids_of(model), ids_of(model, seed=6)
    with model.trace() as tracer:
        with tracer.invoke(clean):
            stream = model.layers[1].layer_output.save()
        tracer.barrier(2)
        with tracer.invoke(corrupted):
            model.layers[1].layer_output[:, -1] = stream[:, -1]
            patched = model.logits.save()
    with model.trace(corrupted):
        model.layers[1].layer_output[:, -1] = stream[:, -1]
        assert torch.equal(model.logits.save(), patched)


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_a_cache_has_what_reading_gives(zoo, tmp_path, name, implementation):
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    with model.trace(ids) as tracer:
        cache = tracer.cache(values=["layers.*.layer_output", "logits"], modules=["layers.1.mlp"], include_inputs=True)
        model.layers[0].layer_output[:] *= 2  # collected before: what stands first in the body comes first
    with model.trace(ids):
        first = model.layers[0].layer_output.save()
        model.layers[0].layer_output[:] *= 2
        mlp_input = model.layers[1].mlp.input.save()
        mlp = model.layers[1].mlp.output.save()
        last = model.layers[-1].layer_output.save()
        logits = model.logits.save()
    assert len(cache) == model.num_layers + 3
    assert torch.equal(cache["layers.0.layer_output"], first) and torch.equal(cache["logits"], logits)
    assert torch.equal(cache["layers.1.mlp.input"], mlp_input) and torch.equal(cache["model.layers.1.mlp.output"], mlp)
    assert torch.equal(cache[f"layers.{model.num_layers - 1}.layer_output"], last)
    cache.to_safetensors(tmp_path / "c.safetensors")
    assert torch.equal(load_file(tmp_path / "c.safetensors")["logits"], logits)
    with pytest.raises(UnknownName, match="was not collected"):
        cache["layers.0.layer_mid"]


def test_a_cache_s_dtype_and_what_it_refuses(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model)) as tracer:
        cache = tracer.cache(dtype=torch.bfloat16)
    assert len(cache) == model.num_layers and cache["layers.3.layer_output"].dtype == torch.bfloat16
    with pytest.raises(UnknownName), model.trace(ids_of(model)) as tracer:
        tracer.cache(values="layers.*.layer_ouptut")
    with pytest.raises(Exception, match="passed|already"), model.trace(ids_of(model)) as tracer:
        model.layers[3].layer_output.save()
        tracer.cache(values="layers.0.layer_output")


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_a_point_has_the_same_bits(zoo, name, implementation):
    model = zoo.model(name, "float32", implementation)
    ids = ids_of(model)
    clean = logits_of(model, ids)
    for block in range(0, model.num_layers, 2):
        with model.trace(ids) as tracer:
            point = tracer.point(f"layers.{block}.layer_output")
            model.layers[block].layer_output[:, -1] *= 3  # after the point: of this run alone
            edited = model.logits.save()
        for _ in range(2):
            with model.trace(start_from=point):
                assert torch.equal(model.logits.save(), clean)
        with model.trace(start_from=point):
            model.layers[block].layer_output[:, -1] *= 3
            assert torch.equal(model.logits.save(), edited)
        with model.trace(start_from=point):
            assert torch.equal(model.logits.save(), clean)


def test_what_lies_before_a_point_has_passed(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model)) as tracer:
        point = tracer.point("layers.3.layer_output")
    with pytest.raises(OutOfOrder), model.trace(start_from=point):
        model.layers[2].layer_output.save()
    with pytest.raises(BadOption):
        model.trace(ids_of(model), start_from=point)


def test_a_point_is_apart_from_what_is_held(model):
    ids = ids_of(model)
    clean = logits_of(model, ids)
    with model.trace(ids) as tracer:
        held = model.layers[3].layer_output
        point = tracer.point("layers.3.layer_output")
        held[:] = 0
        edited = model.logits.save()
    assert not torch.equal(edited, clean)
    with model.trace(start_from=point):
        assert torch.equal(model.logits.save(), clean)
    # An input that was assigned to its module alone is the point's, too.
    with model.trace(ids) as tracer:
        model.layers[1].self_attn.q_proj.input = model.layers[1].self_attn.q_proj.input * 2
        point = tracer.point("layers.1.attention_norm_output")
        expected = model.logits.save()
    for _ in range(2):
        with model.trace(start_from=point):
            model.layers[1].self_attn.q_proj.input[:] = 0
            assert not torch.equal(model.logits.save(), expected)
    with model.trace(start_from=point):
        assert torch.equal(model.logits.save(), expected)


def test_a_point_of_another_model(zoo):
    model, other = zoo.model("mqa"), zoo.model("gemma2")
    with model.trace(ids_of(model)) as tracer:
        point = tracer.point("layers.1.layer_output")
    with pytest.raises(BadOption, match="another model"):
        other.trace(start_from=point)
    with pytest.raises(BadOption, match="mask"):
        model.trace(start_from=point, attention_mask=torch.ones(1, 9))


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_a_point_repeated(zoo, name, implementation):
    """Every copy of a batch is the run itself, at any place, and an edit of one reaches no other."""
    model = zoo.model(name, "float32", implementation)
    ids = torch.cat([ids_of(model), ids_of(model, seed=7)])
    for batch in (ids[:1], ids):
        clean = logits_of(model, batch)
        for value in (
            "token_embeddings",
            "layers.1.layer_output",
            "layers.2.self_attn.attention_scores",
            "layers.2.mlp_input",
        ):
            with model.trace(batch) as tracer:
                point = tracer.point(value).repeat(3)
            assert point.input_size == (3 * len(batch), 9)
            with model.trace(start_from=point) as tracer:
                tracer.read(value)[-len(batch) :] *= 2
                logits = model.logits.save()
            torch.testing.assert_close(logits[: 2 * len(batch)], clean.repeat(2, 1, 1), atol=1e-4, rtol=1e-4)
            with model.trace(batch) as tracer:
                tracer.read(value)[:] *= 2
                edited = model.logits.save()
            torch.testing.assert_close(logits[2 * len(batch) :], edited, atol=1e-4, rtol=1e-4)


def test_what_is_not_repeated(zoo):
    model = zoo.model("gemma4_moe")
    with model.trace(ids_of(model)) as tracer:
        point = tracer.point("layers.1.mlp.expert_weights")
        with pytest.raises(BadOption, match="once or more"):
            point.repeat(0)
        point.repeat(2)
        inside = [row.name for row in model._row_table if "layers.2.experts.act_fn" in row.name]
        with pytest.raises(BadValue, match="mixture"):
            tracer.point(inside[0]).repeat(2)


def test_a_cache_of_tuples_and_globs(zoo):
    model = zoo.model("mqa")
    with model.trace(ids_of(model)) as tracer:
        cache = tracer.cache(modules=["model.layers.*.self_attn", "layers.*", model.norm])
        one = tracer.cache(modules="layers.1.mlp", dtype="bfloat16")
    assert {f"layers.{i}.self_attn.output.0" for i in range(model.num_layers)} <= set(cache)
    assert "norm.output" in cache and "layers.1.output" in cache and "layers.1.mlp.output" not in cache
    assert one["layers.1.mlp.output"].dtype == torch.bfloat16
    for options in ({"dtype": "bfloat"}, {"device": "nowhere"}, {"values": 5}, {"modules": 5}):
        with pytest.raises(BadOption), model.trace(ids_of(model)) as tracer:
            tracer.cache(**options)
    with pytest.raises(CannotWrite):
        cache.to_safetensors("/nowhere/at/all.safetensors")


def test_order_errors_have_both_lines(zoo):
    model = zoo.model("mqa")
    for act in (
        lambda tracer: tracer.cache(values="layers.0.layer_output"),
        lambda tracer: tracer.point("layers.0.layer_output"),
        lambda tracer: model.layers[0].skip(torch.zeros(1, 9, model.hidden_size)),
    ):
        with model.trace(ids_of(model)) as tracer:
            model.layers[3].layer_output.save()
            with pytest.raises(OutOfOrder) as raised:
                act(tracer)
        assert str(raised.value).count("test_invokes_caches_points.py") == 2


def test_stopped_invokes(zoo):
    model = zoo.model("mqa")
    with model.trace() as tracer:
        with tracer.invoke(ids_of(model), grad=True):
            assert model.layers[0].layer_output.requires_grad
            tracer.stop()
        with pytest.raises(OutsideTrace, match="stop"):
            tracer.invoke(ids_of(model))
    with pytest.raises(OutsideTrace, match="invoke"), model.trace() as tracer:
        tracer.cache()
    with pytest.raises(BadOption, match="invoke"), model.trace(ids_of(model)) as tracer:
        tracer.invoke(ids_of(model))


def test_written_rows_of_logits_are_in_caches_and_points(zoo):
    model = zoo.model("mqa", "float32", None)
    ids = ids_of(model)
    last = model(ids)[:, -1]
    with model.trace(ids) as tracer:
        rows = model.logits[:, -1]
        rows += 100
        cache = tracer.cache(values="logits")
    torch.testing.assert_close(cache["logits"][:, -1], last + 100, atol=1e-3, rtol=0)
    with model.trace(ids) as tracer:
        rows = model.logits[:, -1]
        rows += 100
        point = tracer.point("logits")
    with model.trace(start_from=point):
        torch.testing.assert_close(model.logits[:, -1].save(), last + 100, atol=1e-3, rtol=0)


def test_points_that_a_run_cannot_go_on_from(zoo):
    model = zoo.model("mqa")
    with model.scan(ids_of(model)) as tracer:
        scanned = tracer.point("layers.1.layer_output")
    with model.edit() as edited:
        model.layers[1].layer_output[:] = 0
    with model.trace(ids_of(model)) as tracer:
        point = tracer.point("layers.1.layer_output")
    for bad, words in ((scanned, "scan"), ("x", "point of a run")):
        with pytest.raises(BadOption, match=words):
            model.trace(start_from=bad)
    with pytest.raises(BadOption, match="standing edits"):
        edited.trace(start_from=point)


def test_a_point_with_another_rotary_table_is_repeated(zoo):
    model = zoo.model("mqa")
    ids = torch.cat([ids_of(model), ids_of(model, seed=8)])
    with model.trace(ids) as tracer:
        arguments, keywords = model.layers[3].self_attn.inputs
        tables = tuple(table * 0.5 for table in keywords["position_embeddings"])
        model.layers[3].self_attn.inputs = (arguments, {**keywords, "position_embeddings": tables})
        point = tracer.point("layers.3.self_attn.input")
        expected = model.logits.save()
    with model.trace(start_from=point.repeat(2)):
        torch.testing.assert_close(model.logits.save(), expected.repeat(2, 1, 1), atol=1e-4, rtol=1e-4)


def test_a_cache_of_fused_attention(zoo):
    model = zoo.model("mqa", "float32", None)
    with model.trace(ids_of(model)) as tracer:
        cache = tracer.cache(modules="layers.*.self_attn")
    assert list(cache) == [f"layers.{i}.self_attn.output.0" for i in range(model.num_layers)]
