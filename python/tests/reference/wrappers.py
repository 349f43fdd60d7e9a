"""Tiny random multimodal checkpoints, written by transformers itself, and the ways in which files spell their weights.

`build(root, NAME, DTYPE)` writes one and returns its folder; `respell(folder, target, SPELLING)` writes it again with other names.
"""

import json
import shutil
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from . import tokenizer
from .checkpoints import FULL, SLIDING, sizes, weight

SIGLIP = dict(
    hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, image_size=28, patch_size=7
)
SIGLIP |= dict(vision_use_head=False)
IDS = dict(
    boi_token_id=390, eoi_token_id=391, image_token_id=392, video_token_id=393, audio_token_id=394, boa_token_id=395
)
GEMMA4_VISION = dict(
    hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3
)
GEMMA4_VISION |= dict(head_dim=8, patch_size=4, position_embedding_size=20)
GEMMA4_AUDIO = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, subsampling_conv_channels=[8, 4])
GEMMA4_AUDIO |= dict(output_proj_dims=20)


def gemma3():
    text = sizes(400, 48, 80, 7, 4, 2, 16, query_pre_attn_scalar=12, sliding_window=6)
    return transformers.Gemma3Config(
        text_config=text, vision_config=SIGLIP, mm_tokens_per_image=4, image_token_index=392, boi_token_index=390
    )


def gemma4_e2b():
    text = sizes(
        397, 48, 40, 8, 4, 1, 16, sliding_window=7, vocab_size_per_layer_input=397, final_logit_softcapping=20.0
    )
    text |= dict(hidden_size_per_layer_input=10, num_kv_shared_layers=4, use_double_wide_mlp=True, global_head_dim=24)
    text |= dict(layer_types=[SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING, FULL], pad_token_id=3)
    vision = GEMMA4_VISION | dict(use_clipped_linears=True)
    return transformers.Gemma4Config(text_config=text, vision_config=vision, audio_config=GEMMA4_AUDIO, **IDS)


def gemma4_26b():
    text = sizes(396, 32, 28, 5, 4, 2, 8, sliding_window=6, final_logit_softcapping=30.0)
    text |= dict(hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, global_head_dim=12)
    text |= dict(enable_moe_block=True, num_experts=9, top_k_experts=3, moe_intermediate_size=24)
    text |= dict(layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL], use_bidirectional_attention="vision")
    vision = GEMMA4_VISION | dict(standardize=True)
    return transformers.Gemma4Config(text_config=text, vision_config=vision, audio_config=None, **IDS)


def gemma4_unified():
    text = sizes(403, 48, 44, 6, 4, 2, 16, sliding_window=8, final_logit_softcapping=30.0)
    text |= dict(attention_k_eq_v=True, num_global_key_value_heads=1, global_head_dim=24)
    vision = dict(patch_size=4, pooling_kernel_size=3, mm_embed_dim=40, mm_posemb_size=32, output_proj_dims=40)
    return transformers.Gemma4UnifiedConfig(
        text_config=text, vision_config=vision, audio_config=dict(audio_embed_dim=24), **IDS
    )


def paligemma1():
    text = sizes(398, 48, 80, 4, 4, 1, 16) | dict(model_type="gemma")
    return transformers.PaliGemmaConfig(
        text_config=text, vision_config=SIGLIP, image_token_index=392, projection_dim=48, hidden_size=48
    )


def paligemma2():
    text = sizes(399, 48, 80, 5, 4, 2, 16, query_pre_attn_scalar=10, sliding_window=8) | dict(model_type="gemma2")
    text |= dict(attn_logit_softcapping=3.0, final_logit_softcapping=15.0)
    return transformers.PaliGemmaConfig(
        text_config=text, vision_config=SIGLIP, image_token_index=392, projection_dim=48, hidden_size=48
    )


RECIPES = {
    "gemma3": (gemma3, transformers.Gemma3ForConditionalGeneration),
    "gemma4_e2b": (gemma4_e2b, transformers.Gemma4ForConditionalGeneration),
    "gemma4_26b": (gemma4_26b, transformers.Gemma4ForConditionalGeneration),
    "gemma4_unified": (gemma4_unified, transformers.Gemma4UnifiedForConditionalGeneration),
    "paligemma1": (paligemma1, transformers.PaliGemmaForConditionalGeneration),
    "paligemma2": (paligemma2, transformers.PaliGemmaForConditionalGeneration),
}


def random_model(name: str) -> transformers.PreTrainedModel:
    config, model_class = RECIPES[name]
    model = model_class(config())
    text, seed = "model.language_model.", 20 + list(RECIPES).index(name)
    gains_are_weights = name.startswith("gemma4")
    with torch.no_grad():
        for parameter, tensor in model.state_dict().items():
            if parameter == "lm_head.weight":
                continue
            if parameter.startswith(text):
                where = parameter.replace(text, "model.")
                tensor.copy_(weight(where, tensor.shape, seed, gains_are_weights))
            elif tensor.dim():  # of a tower: any numbers; the bounds of clipped linears stay
                generator = torch.Generator().manual_seed(zlib.crc32(parameter.encode()))
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
    return model


def build(root: Path, name: str, dtype: str) -> Path:
    folder = root / name / dtype
    random_model(name).to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.write(folder)
    return folder


# ------------------------------------------------------------------------------------------------ spellings

TEXT, TOWER = "model.language_model.", "model.vision_tower."

# Beginnings of the reference's parameter names, and how files spell them; the first that fits counts.
SPELLINGS = {
    "A": {
        TEXT: "language_model.model.",
        TOWER: "vision_tower.vision_model.",
        "model.": "",
        "lm_head": "language_model.lm_head",
    },
    "B": {TEXT: TEXT, TOWER: TOWER + "vision_model."},
    "C": {},
    "D": {"model.": ""},
    "E": {TEXT: "language_model.model.", "model.": ""},
}
UNIFIED_HUB = {
    "model.embed_vision.multimodal_embedder.": "model.embed_vision.",
    "model.embed_vision.": "model.vision_embedder.",
}


def respell(
    folder: Path, target: Path, spelling: dict[str, str], with_head: bool = False, **more: torch.Tensor
) -> Path:
    """A copy whose weights have other names; `with_head` repeats the tied head, `more` are tensors of its own."""
    names = list(random_names(folder))
    weights = read_weights(folder, names)
    if with_head:
        weights["lm_head.weight"] = weights[TEXT + "embed_tokens.weight"].clone()
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors", "*.index.json"))

    def spelled(name: str) -> str:
        for before, after in spelling.items():
            if name.startswith(before):
                return after + name.removeprefix(before)
        return name

    save_file({spelled(name): tensor for name, tensor in weights.items()} | more, target / "model.safetensors")
    return target


def random_names(folder: Path) -> list[str]:
    """The reference's own names, the tied head left out."""
    kind = json.loads((folder / "config.json").read_text())["architectures"][0]
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    return [name for name in model.state_dict() if name != "lm_head.weight"]


def read_weights(folder: Path, names: list[str]) -> dict[str, torch.Tensor]:
    """The file's tensors under the reference's names, whichever way save_pretrained has spelled them."""
    stored = load_file(folder / "model.safetensors")
    every = [{}, *SPELLINGS.values(), UNIFIED_HUB]
    found = {}
    for name in names:
        for spelling in every:
            before = next((start for start in spelling if name.startswith(start)), "")
            candidate = spelling.get(before, "") + name.removeprefix(before)
            if candidate in stored:
                found[name] = stored[candidate]
                break
    missing = set(names) - set(found)
    assert not missing, f"{sorted(missing)[:4]} are in none of the spellings; there is {sorted(stored)[:4]}"
    return found
