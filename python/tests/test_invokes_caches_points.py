"""Several prompts in one trace, values collected by name, runs that start in the middle."""

import pytest
import torch
from safetensors.torch import load_file

from conftest import token_ids
from gemloupe.errors import BadOption, OutOfOrder, UnknownName
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
