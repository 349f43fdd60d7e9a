"""The configs that ship with gemloupe: names and shapes are those of the reference's model, built without memory."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers.initialization import no_init_weights

import gemloupe
from gemloupe import StandardizedTransformer, _core
from test_cli import refused, run, run_json

RELEASED = {name: (hub_ids, config) for name, hub_ids, config in _core.released()}
DATA = Path(__file__).parents[2] / "tests" / "data" / "report"


def reference_of(config: dict) -> torch.nn.Module:
    model_class = getattr(transformers, config["architectures"][0])
    with torch.device("meta"), no_init_weights():
        return model_class(model_class.config_class.from_dict(copy.deepcopy(config)))


def weights_of(model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape, _, _ in model._core.plan.weights}


def test_all_are_there():
    assert len(RELEASED) == len(gemloupe.released()) == 27
    every = [hub_id for hub_ids in gemloupe.released().values() for hub_id in hub_ids]
    assert len(every) == len(set(every)) and all(hub_id.startswith("google/") for hub_id in every)


@pytest.mark.parametrize("name", RELEASED)
def test_names_and_shapes_are_the_references(name):
    reference = reference_of(RELEASED[name][1])
    model = StandardizedTransformer.from_config(name)
    expected = {name: tuple(tensor.shape) for name, tensor in reference.state_dict().items()}
    assert weights_of(model) == expected
    buffers = {name for name, _, is_buffer, _ in model._core.plan.weights if is_buffer}
    assert buffers == expected.keys() - dict(reference.named_parameters(remove_duplicate=False)).keys()
    native = {info["path"]: info["class_name"] for info in model._infos}
    assert native == {path: type(module).__name__ for path, module in reference.named_modules()}


@pytest.mark.parametrize("name", RELEASED)
def test_what_a_model_without_weights_can_do(name):
    hub_ids, config = RELEASED[name]
    model = StandardizedTransformer.from_config(hub_ids[-1])
    text = config.get("text_config", config)
    assert model.num_layers == len(model.layers) == text["num_hidden_layers"]
    assert model.hidden_size == text["hidden_size"] and model.vocab_size == text["vocab_size"]
    assert tuple(model.embed_tokens.weight.shape) == (text["vocab_size"], text["hidden_size"])
    assert str(model).startswith(config["architectures"][0] + "(\n")
    assert "model.layers[i].mlp" in str(model.support())
    assert ("vision" in model.__dict__) == (config.get("vision_config") is not None)


@pytest.mark.parametrize("name", ["gemma-2b", "gemma-3-1b", "gemma-4-E2B"])
def test_printouts(name):
    assert run("show", name) == (DATA / f"{name}.txt").read_text()


CONFIG_TABLES = json.loads((DATA / "config_tables.json").read_text())


@pytest.mark.parametrize("name", CONFIG_TABLES)
def test_config_tables(name):
    said = run_json("support", name)
    assert list(said["config"].items()) == list(CONFIG_TABLES[name]["config"].items())
    assert said.get("vision") == CONFIG_TABLES[name].get("vision")
    sizes = {key: value for key, value in said["model"].items() if key.startswith("model.")}
    assert list(sizes.items()) == list(CONFIG_TABLES[name]["sizes"].items())


# ------------------------------------------------------------------------------------------------ from_config, dispatch


def test_the_same_from_a_name_a_hub_id_a_dict_and_a_file(tmp_path):
    config = RELEASED["gemma-3-4b"][1]
    (tmp_path / "config.json").write_text(json.dumps(config))
    models = [
        StandardizedTransformer.from_config(given) for given in ("gemma-3-4b", "google/gemma-3-4b-it", config, tmp_path)
    ]
    assert len({str(model) for model in models}) == 1
    assert all(model.config.text_config.num_hidden_layers == 34 for model in models)
    assert models[0].layers[0].self_attn.q_proj.weight.device.type == "meta"
    assert models[0].layers[0].self_attn.q_proj.weight.dtype == torch.bfloat16
    assert StandardizedTransformer.from_config("gemma-3-4b", dtype="float32").config.dtype == torch.float32


@pytest.mark.parametrize("made", ["from_config", "dispatch"])
def test_runs_are_refused(zoo, made):
    folder = zoo.folder("gemma4_e2b")
    makers = {"from_config": StandardizedTransformer.from_config, "dispatch": StandardizedTransformer}
    model = makers[made](folder, dispatch=False)
    assert str(model) == str(zoo.model("gemma4_e2b"))
    assert model.tokenizer("a").input_ids
    for attempt in (
        lambda: model.trace([1, 2]),
        lambda: model([1, 2]),
        lambda: model.generate([1, 2]),
        lambda: model.project_on_vocab(torch.zeros(48)),
    ):
        with pytest.raises(gemloupe.NotFound, match="no weights.*Load a checkpoint"):
            attempt()


def test_a_config_alone_has_no_tokenizer_and_is_not_loaded():
    with pytest.raises(gemloupe.NotFound, match="no tokenizer"):
        StandardizedTransformer.from_config("gemma-2b").tokenizer  # noqa: B018
    with pytest.raises(gemloupe.BadOption, match="from_config"):
        StandardizedTransformer(RELEASED["gemma-2b"][1])
    with pytest.raises(gemloupe.NotFound, match="hf download"):
        StandardizedTransformer("google/gemma-2b")
    with pytest.raises(gemloupe.BadConfig, match="model_type"):
        StandardizedTransformer.from_config({"hidden_size": 3})


# ------------------------------------------------------------------------------------------------ the command line


def test_show_for_machines():
    said = run_json("show", "google/gemma-4-E2B")
    assert said["class"] == "Gemma4ForConditionalGeneration" and said["family"] == "gemma4_text"
    assert said["parameter_count"] == 5_104_297_504
    modules, parameters, values = {}, {}, {}

    def visit(module):
        modules[module["native_path"]] = module["path"]
        parameters.update({parameter["name"]: parameter for parameter in module.get("parameters", [])})
        values.update({value["name"]: value for value in module.get("values", [])})
        for child in module.get("modules", []):
            visit(child)

    visit(said)
    assert modules["model.language_model.layers.3.mlp"] == "layers.3.mlp"
    assert modules["model.vision_tower.encoder.layers.3"] == "vision.layers.3"
    assert modules["model.embed_vision"] == "projector"
    assert parameters.keys() == weights_of(StandardizedTransformer.from_config("gemma-4-E2B")).keys()
    assert parameters["lm_head.weight"]["tied_to"] == "model.language_model.embed_tokens.weight"
    assert parameters["model.language_model.layers.0.layer_scalar"]["buffer"]
    assert values["layers.4.self_attn.attention_keys"]["sizes"] == [None, 1, None, 512]
    assert values["vision.tower_output"]["sizes"] == [None, None, 768]
    assert "image" in values["vision.tower_output"]["not_in_a_text_run"]
    assert "mixture" in values["layers.0.mlp.router_logits"]["absent"]


def test_a_folder_wins_over_a_name(zoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gemma-3-1b").symlink_to(zoo.folder("mqa"))
    assert "in_features=48" in run("show", "gemma-3-1b")


def test_a_name_that_is_not_released():
    refused(1, "show", "gemma-4-E2", words=["gemma-4-E2B"])
    refused(1, "support", "google/gemma-3-4b-ot", words=["google/gemma-3-4b-it"])
