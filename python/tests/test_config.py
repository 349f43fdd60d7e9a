"""`model.config` is what the reference makes of the same config.json."""

import json
import shutil

import pytest
import torch
import transformers

import gemloupe
from conftest import token_ids
from gemloupe import StandardizedTransformer
from helpers import logits_of
from reference import checkpoints
from reference.bits import assert_equal_bits
from reference.capture import Reference

PROPERTIES = ["model_type", "num_labels", "rope_scaling", "output_attentions"]

# As the repositories of Google hold it, but for the sizes: keys that mean nothing to a forward pass and a list of ends.
RELEASED = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "initializer_range": 0.02,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0",
    "use_cache": True,
}
SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 7}


def attributes(config) -> dict:
    """Everything public that the reference's config has, as people read it."""
    names = [name for name in vars(config) if not name.startswith("_")]
    return {name: getattr(config, name) for name in [*names, *PROPERTIES]}


def plain(value):
    """Tuples and lists, and objects with the same items, are the same here."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def assert_same_config(model, reference):
    expected = attributes(reference.config)
    found = {name: getattr(model.config, name, "no such attribute") for name in expected}
    wrong = {name: (found[name], expected[name]) for name in expected if plain(found[name]) != plain(expected[name])}
    assert not wrong, f"(found, expected): {wrong}"
    mistyped = {
        name: found[name] for name in expected if isinstance(expected[name], bool) != isinstance(found[name], bool)
    }
    assert not mistyped


def with_config(source, folder, **changes):
    """A copy of a checkpoint with other config keys; None as a change removes the key."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    config = {key: value for key, value in config.items() if value is not REMOVED}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


REMOVED = object()


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """Weights for SIZES with every other size the class default."""
    folder = tmp_path_factory.mktemp("sized") / "model"
    torch.manual_seed(0)
    transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SIZES)).bfloat16().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("variant", checkpoints.VARIANTS)
def test_the_attributes_are_the_reference_s(checkpoint, variant):
    folder = checkpoint.zoo.folder(checkpoint.name, checkpoint.dtype, variant)
    assert_same_config(StandardizedTransformer(folder), Reference(folder))


def test_class_defaults_fill_a_minimal_file(sized, tmp_path):
    """Repositories leave out what equals a class default, head counts and windows among it."""
    folder = tmp_path / "minimal"
    shutil.copytree(sized, folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3_text", **SIZES}))
    model = StandardizedTransformer(folder, attn_implementation="eager")
    assert_same_config(model, Reference(folder))
    assert (model.num_heads, model.num_kv_heads, model.head_dim) == (8, 4, 256)
    ids = token_ids(9, 64)
    assert_equal_bits(logits_of(model, ids), Reference(folder).logits(ids), "logits")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
        {"sliding_window_pattern": 2},
        {"rope_theta": 500000.0, "rope_local_base_freq": 20000.0},
        {"layer_types": ["full_attention", "sliding_attention"] * 3 + ["full_attention"]},
        {"use_bidirectional_attention": True, "sliding_window": 7},
        {"final_logit_softcapping": 30.0},
        {"tie_word_embeddings": True, "_name_or_path": "google/gemma-3-270m", "head_dim": 256},
        {"dtype": "bfloat16", "torch_dtype": "float32"},
        {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}},
    ],
    ids=lambda changes: "-".join(changes) or "as-released",
)
def test_released_files(sized, tmp_path, changes):
    folder = tmp_path / "released"
    shutil.copytree(sized, folder)
    (folder / "config.json").write_text(json.dumps(RELEASED | SIZES | {"num_attention_heads": 8} | changes))
    model = StandardizedTransformer(folder, attn_implementation="eager")
    reference = Reference(folder)
    assert_same_config(model, reference)
    ids = token_ids(20, 64)
    assert_equal_bits(logits_of(model, ids), reference.logits(ids), "logits")


def test_sizes_at_the_root_and_on_blocks(checkpoint32):
    model, config = checkpoint32.model(), checkpoint32.reference().config
    assert model.num_layers == config.num_hidden_layers == len(model.layers)
    for name, key in {
        "hidden_size": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "qk_head_dim": "head_dim",
        "vocab_size": "vocab_size",
        "intermediate_size": "intermediate_size",
    }.items():
        assert getattr(model, name) == getattr(config, key), name
        if name != "vocab_size":
            assert getattr(model.layers[0], name) == getattr(config, key), name


def test_a_block_s_kind(checkpoint32):
    model, reference = checkpoint32.model(), checkpoint32.reference().model.model
    for i, block in enumerate(reference.layers):
        assert model.layers[i].self_attn._module.sliding_window == block.self_attn.sliding_window


# ------------------------------------------------------------------------------------------------ keys


def test_an_unknown_key_is_refused(zoo, tmp_path):
    folder = with_config(zoo.folder("mqa"), tmp_path / "model", attention_sinks=4)
    with pytest.raises(gemloupe.BadConfig, match="attention_sinks") as refused:
        StandardizedTransformer(folder)
    assert "config.json" in str(refused.value) and "ignore_config_keys" in str(refused.value)


def test_a_misspelt_key_is_refused_with_the_nearest(zoo, tmp_path):
    folder = with_config(zoo.folder("mqa"), tmp_path / "model", sliding_windows=4)
    with pytest.raises(gemloupe.BadConfig, match=r"sliding_windows(.|\n)*sliding_window\b"):
        StandardizedTransformer(folder)


def test_ignore_config_keys(zoo, tmp_path):
    folder = with_config(zoo.folder("mqa"), tmp_path / "model", attention_sinks=4, other=[1])
    model = StandardizedTransformer(
        folder, attn_implementation="eager", ignore_config_keys=["attention_sinks", "other"]
    )
    ids = token_ids(20, 400)
    assert_equal_bits(logits_of(model, ids), zoo.reference("mqa").logits(ids), "logits")
    with pytest.raises(gemloupe.BadConfig, match="other"):
        StandardizedTransformer(folder, ignore_config_keys=["attention_sinks"])


def test_bookkeeping_of_fine_tunes_is_ignored(zoo, tmp_path):
    folder = with_config(
        zoo.folder("mqa"),
        tmp_path / "model",
        unsloth_fixed=True,
        unsloth_version="2025.3.19",
        _attn_implementation_autoset=True,
        auto_map={"AutoConfig": "x.Y"},
        task_specific_params=None,
    )
    model = StandardizedTransformer(folder, attn_implementation="eager")
    ids = token_ids(20, 400)
    assert_equal_bits(logits_of(model, ids), zoo.reference("mqa").logits(ids), "logits")


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"hidden_size": "48"}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_attention_heads": 5}, "num_attention_heads"),
        ({"head_dim": 15}, "head_dim"),
        ({"layer_types": ["sliding_attention"]}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 8}, "chunked_attention"),
        ({"hidden_activation": "relu"}, "hidden_activation"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}}}, "yarn"),
        ({"model_type": "gemma7"}, "gemma7"),
        ({"model_type": REMOVED}, "model_type"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_make_no_sense_are_refused(zoo, tmp_path, changes, named):
    folder = with_config(zoo.folder("mqa"), tmp_path / "model", **changes)
    with pytest.raises(gemloupe.BadConfig, match=named) as refused:
        StandardizedTransformer(folder)
    assert "config.json" in str(refused.value)


@pytest.mark.parametrize("cap", [None, 5.0, "config"])
def test_a_cap_of_one_s_own(zoo, cap):
    model = StandardizedTransformer(zoo.folder("softcap"), attn_implementation="eager", final_logit_softcapping=cap)
    ids = token_ids(20, 401)
    with model.trace(ids):
        raw = model.lm_head_output.save()
        logits = model.logits.save()
    used = 20.0 if cap == "config" else cap
    assert_equal_bits(logits, raw if used is None else torch.tanh(raw / used) * used, "logits")
