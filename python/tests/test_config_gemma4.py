"""Gemma 4's config.json: read as the reference reads it, and refused where it contradicts itself."""

import pytest
import torch
import transformers

from gemloupe import StandardizedTransformer
from gemloupe.errors import BadCheckpoint, BadConfig
from test_config import plain, with_config

NAMES = ["gemma4_e2b", "gemma4_e4b", "gemma4_31b", "gemma4_moe", "gemma4_odd", "gemma4_unified"]
SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize("variant", ["single", "released"])
@pytest.mark.parametrize("name", NAMES)
def test_attributes(zoo, name, variant):
    folder = zoo.folder(name, "float32", variant)
    config = StandardizedTransformer(folder).config
    reference = transformers.AutoConfig.from_pretrained(folder)
    expected = {key: value for key, value in reference.to_dict().items() if not key.startswith("_")}
    expected["sliding_window"] = reference.sliding_window  # to_dict undoes what reading did
    expected["per_layer_config"] = {
        int(block): {key: value for key, value in own.items() if value != getattr_quietly(reference, key)}
        for block, own in expected["per_layer_config"].items()
    }
    wrong = {key: (getattr(config, key, "none"), value) for key, value in expected.items() if key not in ("dtype",)}
    wrong = {key: pair for key, pair in wrong.items() if plain(pair[0]) != plain(pair[1])}
    assert not wrong, f"(found, expected): {wrong}"


def getattr_quietly(config, key):
    """The root's value of what differs between blocks, which the reference gives only when told that one knows."""
    return config._getattr_without_heterogeneous_validation(key)


def changed(zoo, tmp_path, name="gemma4_e2b", **changes):
    folder = tmp_path / "changed"
    with_config(zoo.folder(name), folder, **changes)
    return folder


@pytest.mark.parametrize(
    "name, changes, words",
    [
        ("gemma4_e2b", {"layer_types": [SLIDING] * 3}, "names 3 blocks, num_hidden_layers says 8"),
        ("gemma4_e2b", {"layer_types": ["sparse"] * 8}, "'sparse', which is neither"),
        ("gemma4_e2b", {"num_kv_shared_layers": 9}, "num_kv_shared_layers is 9, but there are 8 blocks"),
        (
            "gemma4_e2b",
            {"num_kv_shared_layers": 8},
            "block 0 borrows keys and values of 'sliding_attention', but no block",
        ),
        (
            "gemma4_e2b",
            {"num_kv_shared_layers": 6},
            "block 2 borrows keys and values of 'full_attention', but no block",
        ),
        ("gemma4_e2b", {"num_attention_heads": 5, "hidden_size": 50, "num_key_value_heads": 3}, "no multiple of"),
        ("gemma4_e2b", {"use_bidirectional_attention": "some"}, "not 'all', 'vision' or null"),
        ("gemma4_e2b", {"is_causal": False}, "is_causal is false, which contradicts"),
        ("gemma4_e2b", {"rope_parameters": {FULL: {"rope_type": "proportional"}}}, "sliding_attention'] is missing"),
        (
            "gemma4_e2b",
            {"rope_parameters": {FULL: {"rope_type": "yarn"}, SLIDING: {}}},
            "rope_type \"yarn\" is none of 'default' and 'linear' and 'proportional'",
        ),
        (
            "gemma4_e2b",
            {"rope_parameters": {FULL: {"rope_type": "proportional", "partial_rotary_factor": 1.5}, SLIDING: {}}},
            "partial_rotary_factor must be above 0 and at most 1",
        ),
        ("gemma4_e2b", {"per_layer_config": {"2": {"head_dim": 24}}}, "blocks 2 and 5 are both 'full_attention'"),
        ("gemma4_e2b", {"per_layer_config": {"8": {"head_dim": 24}}}, "names block '8', but the blocks are 0 to 7"),
        ("gemma4_e2b", {"per_layer_config": {"2": {"intermediate_size": 24}}}, "only head_dim and num_key_value_heads"),
        ("gemma4_e2b", {"per_layer_config": {"2": {"head_dim": -4}}}, "head_dim -4, which is no size"),
        ("gemma4_e2b", {"per_layer_config": [1]}, "must be an object"),
        ("gemma4_e2b", {"hidden_activation": "silu"}, "is not 'gelu_pytorch_tanh'"),
        ("gemma4_moe", {"num_experts": None}, "enable_moe_block needs num_experts"),
        ("gemma4_moe", {"top_k_experts": 10}, r"top_k_experts \(10\) is above num_experts \(9\)"),
        ("gemma4_e2b", {"query_pre_attn_scalar": 256}, "'query_pre_attn_scalar' has no meaning"),
        ("gemma4_unified", {"enable_moe_block": True}, "gemma4_unified_text has no such part"),
        ("gemma4_unified", {"hidden_size_per_layer_input": 256}, "gemma4_unified_text has no such part"),
        ("mqa", {"num_kv_shared_layers": 2}, "'num_kv_shared_layers' has no meaning .* 'gemma3_text'"),
    ],
)
def test_a_config_that_contradicts_itself(zoo, tmp_path, name, changes, words):
    folder = changed(zoo, tmp_path, name, **changes)
    with pytest.raises(BadConfig, match=words) as caught:
        StandardizedTransformer(folder)
    assert str(folder) in str(caught.value)


def test_a_config_of_other_sizes_than_the_weights(zoo, tmp_path):
    with pytest.raises(BadCheckpoint, match=r"layers\.\d+\..*has shape .* but the config makes it"):
        StandardizedTransformer(changed(zoo, tmp_path, use_double_wide_mlp=False))


def test_the_last_block_is_full_whatever_the_file_says(zoo, tmp_path):
    folder = changed(zoo, tmp_path, "gemma4_31b", layer_types=[SLIDING] * 5 + [FULL, SLIDING])
    with pytest.warns(UserWarning, match="the last block is run as 'full_attention'"):
        model = StandardizedTransformer(folder, attn_implementation="eager")
    ids = torch.tensor([[2, 5, 9, 30]])
    assert model.config.layer_types[-1] == FULL and torch.equal(model(ids), zoo.model("gemma4_31b")(ids))


def test_keys_and_values_of_blocks_that_borrow_are_ignored_by_name(zoo, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = changed(zoo, tmp_path)
    weights = load_file(folder / "model.safetensors")
    borrowed = {
        name.replace("layers.1.", "layers.7."): tensor.clone()
        for name, tensor in weights.items()
        if name.startswith("model.layers.1.self_attn.") and name.split(".")[4] in ("k_proj", "v_proj", "k_norm")
    }
    assert len(borrowed) == 3 and not borrowed.keys() & weights.keys()
    save_file(weights | borrowed, folder / "model.safetensors")
    ids = torch.tensor([[2, 5, 9, 30]])
    assert torch.equal(StandardizedTransformer(folder, attn_implementation="eager")(ids), zoo.model("gemma4_e2b")(ids))
    stray = {"model.layers.1.self_attn.k_bias": torch.zeros(3)}
    save_file(weights | stray, folder / "model.safetensors")
    with pytest.raises(BadCheckpoint, match="k_bias"):
        StandardizedTransformer(folder)
