"""Tiny random checkpoints of the Gemma text families, written by transformers itself.

`folder(root, NAME, DTYPE, VARIANT)` is where one lies. The variants hold the same weights: `single` is one
safetensors file, `sharded` several with an index, `released` spells config.json with the keys of the released
repositories. `gguf_file(root)` is a quantised checkpoint and `folder(root, "gguf", "float32")` the same dequantised.
"""

import hashlib
import itertools
import json
import os
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy
import torch
import transformers

from . import tokenizer

SLIDING, FULL = "sliding_attention", "full_attention"
VARIANTS = ("single", "sharded", "released")


@dataclass(frozen=True)
class Recipe:
    seed: int
    config: dict
    has_tokenizer: bool = True
    config_class: type = transformers.Gemma3TextConfig


def sizes(vocabulary, hidden, inner, blocks, heads, kv_heads, head_dim, **more) -> dict:
    return dict(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=256,
        **more,
    )


RECIPES = {
    # One key/value head; the query scale is not head_dim's; heads x head_dim is not hidden.
    "mqa": Recipe(1, sizes(400, 48, 80, 8, 4, 1, 16, query_pre_attn_scalar=12, sliding_window=6)),
    # The logits are softcapped, the attention is not, whatever the config says; an odd vocabulary.
    "softcap": Recipe(
        2,
        sizes(401, 40, 72, 6, 4, 2, 14, query_pre_attn_scalar=14, sliding_window=9)
        | dict(final_logit_softcapping=20.0, attn_logit_softcapping=15.0),
    ),
    # As many key/value heads as heads, biases, a head of its own, block kinds spelled out, scaled rotary.
    "untied": Recipe(
        3,
        sizes(407, 36, 50, 5, 3, 3, 8, query_pre_attn_scalar=9, sliding_window=5, rms_norm_eps=1e-5)
        | dict(layer_types=[FULL, SLIDING, SLIDING, FULL, SLIDING], attention_bias=True, tie_word_embeddings=False)
        | dict(
            rope_parameters={
                FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 500_000.0},
                SLIDING: {"rope_type": "default", "rope_theta": 20_000.0},
            }
        ),
    ),
    # Every token sees both ways: the window of 7 becomes 4 to each side.
    "bidirectional": Recipe(
        4,
        sizes(396, 32, 60, 5, 4, 2, 10, query_pre_attn_scalar=10, sliding_window=7)
        | dict(sliding_window_pattern=3, use_bidirectional_attention=True),
    ),
    # As small as it gets, odd sizes, no tokenizer.
    "minimal": Recipe(5, sizes(37, 11, 7, 1, 1, 1, 6, query_pre_attn_scalar=5, sliding_window=3), has_tokenizer=False),
    # Gemma 1: heads x head_dim is not hidden, two query heads to a key/value head.
    "gemma": Recipe(8, sizes(398, 48, 80, 4, 4, 2, 16), config_class=transformers.GemmaConfig),
    # Gemma 1 as 2B: one key/value head, and the legacy activation of the released files.
    "gemma_mqa": Recipe(
        9, sizes(403, 36, 52, 3, 3, 1, 22, hidden_act="gelu", rms_norm_eps=1e-5), config_class=transformers.GemmaConfig
    ),
    # Gemma 2: both softcaps bend, the query scale is not head_dim's, a window shorter than the prompts.
    "gemma2": Recipe(
        10,
        sizes(399, 48, 80, 5, 4, 2, 16, query_pre_attn_scalar=10, sliding_window=8)
        | dict(attn_logit_softcapping=3.0, final_logit_softcapping=15.0),
        config_class=transformers.Gemma2Config,
    ),
    # Gemma 2 without caps, its kinds spelled out.
    "gemma2_plain": Recipe(
        11,
        sizes(405, 32, 44, 4, 2, 2, 12, query_pre_attn_scalar=12, sliding_window=5, attention_bias=True)
        | dict(attn_logit_softcapping=None, final_logit_softcapping=None, layer_types=[FULL, SLIDING, SLIDING, FULL]),
        config_class=transformers.Gemma2Config,
    ),
    # Gemma 2 as a GGUF can carry it: no biases, the query scale is head_dim's.
    "gemma2_gguf": Recipe(
        18,
        sizes(402, 40, 56, 4, 4, 2, 12, query_pre_attn_scalar=12, sliding_window=6)
        | dict(attn_logit_softcapping=5.0, final_logit_softcapping=20.0),
        config_class=transformers.Gemma2Config,
    ),
    # Gemma 4 as E2B: per-layer embeddings, the last blocks borrow, their MLP is twice as wide, one key/value head.
    "gemma4_e2b": Recipe(
        12,
        sizes(397, 48, 40, 8, 4, 1, 16, sliding_window=7, vocab_size_per_layer_input=397, final_logit_softcapping=20.0)
        | dict(hidden_size_per_layer_input=10, num_kv_shared_layers=4, use_double_wide_mlp=True, global_head_dim=24)
        | dict(layer_types=[SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING, FULL]),
        config_class=transformers.Gemma4TextConfig,
    ),
    # Gemma 4 as E4B: two key/value heads, borrowers of one kind only next to their source.
    "gemma4_e4b": Recipe(
        13,
        sizes(401, 40, 36, 6, 4, 2, 12, sliding_window=5, vocab_size_per_layer_input=401, rms_norm_eps=1e-5)
        | dict(hidden_size_per_layer_input=7, num_kv_shared_layers=2, global_head_dim=20, attention_bias=True)
        | dict(layer_types=[FULL, SLIDING, SLIDING, SLIDING, SLIDING, FULL])
        | dict(
            rope_parameters={
                FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.6, "rope_theta": 300_000.0},
                SLIDING: {"rope_type": "default", "rope_theta": 20_000.0},
            }
        ),
        config_class=transformers.Gemma4TextConfig,
    ),
    # Gemma 4 as 31B: full blocks have fewer, wider key/value heads and take their values from the key projection.
    "gemma4_31b": Recipe(
        14,
        sizes(404, 36, 50, 7, 6, 3, 10, sliding_window=6, final_logit_softcapping=30.0)
        | dict(hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=2, global_head_dim=14)
        | dict(use_bidirectional_attention="vision", tie_word_embeddings=False),
        config_class=transformers.Gemma4TextConfig,
    ),
    # Gemma 4 as 26B-A4B: a mixture of experts beside the dense MLP. (torch's grouped product wants strides of 16 bytes.)
    "gemma4_moe": Recipe(
        15,
        sizes(396, 32, 28, 5, 4, 2, 8, sliding_window=6, final_logit_softcapping=30.0)
        | dict(hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, global_head_dim=12)
        | dict(enable_moe_block=True, num_experts=9, top_k_experts=3, moe_intermediate_size=24)
        | dict(layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL]),
        config_class=transformers.Gemma4TextConfig,
    ),
    # Every token sees both ways, one expert a token, per-layer embeddings beside a mixture, odd sizes.
    "gemma4_odd": Recipe(
        16,
        sizes(41, 24, 7, 3, 3, 1, 6, sliding_window=5, vocab_size_per_layer_input=41, final_logit_softcapping=None)
        | dict(hidden_size_per_layer_input=3, num_kv_shared_layers=1, global_head_dim=10, use_double_wide_mlp=True)
        | dict(enable_moe_block=True, num_experts=4, top_k_experts=1, moe_intermediate_size=8)
        | dict(use_bidirectional_attention="all", layer_types=[FULL, SLIDING, FULL]),
        has_tokenizer=False,
        config_class=transformers.Gemma4TextConfig,
    ),
    # Gemma 4 12B's text model.
    "gemma4_unified": Recipe(
        17,
        sizes(403, 48, 44, 6, 4, 2, 16, sliding_window=8, final_logit_softcapping=30.0)
        | dict(attention_k_eq_v=True, num_global_key_value_heads=1, global_head_dim=24),
        config_class=transformers.Gemma4UnifiedTextConfig,
    ),
    # As many blocks as the documentation's examples name.
    "deep": Recipe(7, sizes(400, 24, 20, 14, 4, 1, 8, query_pre_attn_scalar=8, sliding_window=8)),
    # Rows of whole quantisation blocks; eps as a GGUF carries it.
    "gguf": Recipe(
        6,
        sizes(len(tokenizer.TOKENS), 64, 96, 7, 4, 2, 32, query_pre_attn_scalar=32, sliding_window=6)
        | dict(rms_norm_eps=float(numpy.float32(1e-6))),
    ),
}
NAMES = [
    name
    for name, recipe in RECIPES.items()
    if recipe.config_class is transformers.Gemma3TextConfig and name not in ("deep", "gguf")
]
OTHER_FAMILIES = [name for name, recipe in RECIPES.items() if recipe.config_class is not transformers.Gemma3TextConfig]


def folder(root: Path, name: str, dtype: str, variant: str = "single") -> Path:
    return root / name / dtype / variant


def gguf_file(root: Path) -> Path:
    return root / "gguf" / "tiny.gguf"


def build_all(cache: Path) -> Path:
    """The folder with every checkpoint, made once for each version of this code."""
    sources = b"".join(Path(file).read_bytes() for file in (__file__, tokenizer.__file__))
    digest = hashlib.sha256(sources + transformers.__version__.encode()).hexdigest()[:16]
    root = cache / digest
    if not root.exists():
        scratch = Path(tempfile.mkdtemp(dir=cache))
        for name in (*NAMES, *OTHER_FAMILIES, "deep"):
            build(scratch, name)
        build_gguf(scratch)
        try:
            os.rename(scratch, root)
        except OSError:  # another run was quicker
            shutil.rmtree(scratch)
    return root


# ------------------------------------------------------------------------------------------------ weights


def weight(name: str, shape: torch.Size, seed: int, gains_are_weights: bool = False) -> torch.Tensor:
    """Random values on a scale that fits the tensor: no gain near zero, no vanishing or exploding stream."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))

    def normal(std, mean=0.0):
        return torch.randn(shape, generator=generator) * std + mean

    if name.endswith("layer_scalar"):
        return (torch.rand(shape, generator=generator) + 0.4).round(decimals=3)
    if gains_are_weights and name.endswith(("q_norm.weight", "k_norm.weight")):
        return normal(0.1, 0.5)  # no scale follows: the gains are the temperature
    if gains_are_weights and ("norm" in name or name.endswith((".scale", "per_expert_scale"))):
        return weight(name, shape, seed) + (0.0 if name == "model.norm.weight" else 1.0)
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return normal(1.2 * shape[2] ** -0.5)
    if name.endswith((".scale", "per_expert_scale", "per_layer_projection_norm.weight", "per_layer_input_norm.weight")):
        return normal(0.2)
    if name == "model.norm.weight":  # logits wide enough to be capped; signs, lest a tied head repeat the last token
        return (torch.rand(shape, generator=generator) * 5.0 + 3.0) * normal(1.0).sign()
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return normal(0.25, 0.2)
    if "layernorm" in name:
        return normal(0.15, -0.65) if ".post_" in name else normal(0.3, 0.2)  # a block adds a fraction of the stream
    if name.endswith("bias"):
        return normal(0.2)
    if "embed_tokens" in name or "lm_head" in name:
        return normal(shape[1] ** -0.5)
    return normal(1.2 * shape[1] ** -0.5)


def random_model(name: str) -> transformers.PreTrainedModel:
    recipe = RECIPES[name]
    model = transformers.AutoModelForCausalLM.from_config(recipe.config_class(**recipe.config))
    with torch.no_grad():
        gains_are_weights = recipe.config_class.model_type.startswith("gemma4")
        buffers = ((name, tensor) for name, tensor in model.named_buffers() if name.endswith("layer_scalar"))
        for parameter, tensor in itertools.chain(model.named_parameters(), buffers):  # a tied head comes once
            tensor.copy_(weight(parameter, tensor.shape, recipe.seed, gains_are_weights))
    return model


# ------------------------------------------------------------------------------------------------ folders


def build(root: Path, name: str):
    model = random_model(name)
    for dtype in ("float32", "bfloat16"):
        model.to(getattr(torch, dtype))
        single = folder(root, name, dtype)
        save(model, single, has_tokenizer=RECIPES[name].has_tokenizer)
        size = (single / "model.safetensors").stat().st_size
        save(model, folder(root, name, dtype, "sharded"), RECIPES[name].has_tokenizer, max_shard_size=size // 3)
        released = folder(root, name, dtype, "released")
        shutil.copytree(single, released)
        config = json.loads((single / "config.json").read_text())
        (released / "config.json").write_text(json.dumps(released_style(config), indent=2))


def save(model, where: Path, has_tokenizer: bool, **options):
    model.save_pretrained(where, **options)
    if has_tokenizer:
        tokenizer.write(where)


def released_style(config: dict) -> dict:
    """The same model in the keys of the released config.json files, which 5.24's save_pretrained has replaced."""
    config = dict(config)
    if config["model_type"].startswith("gemma4"):  # one size for all full blocks
        of_full = next(iter(config.pop("per_layer_config").values()))
        config["global_head_dim"] = of_full["head_dim"]
        config["num_global_key_value_heads"] = of_full.get("num_key_value_heads")
        return config
    rope = config.pop("rope_parameters")
    if config["model_type"] != "gemma3_text":  # one rotary table; Gemma 2's kinds alternate
        config["rope_theta"] = rope["rope_theta"]
        if config.get("layer_types") == [(SLIDING, FULL)[i % 2] for i in range(config["num_hidden_layers"])]:
            del config["layer_types"]
        config["torch_dtype"] = config.pop("dtype")
        return config
    pattern = config.pop("_sliding_window_pattern")
    regular = [FULL if (i + 1) % pattern == 0 else SLIDING for i in range(config["num_hidden_layers"])]
    if config["layer_types"] == regular:
        del config["layer_types"]
    config["sliding_window_pattern"] = pattern
    config["rope_theta"] = rope[FULL]["rope_theta"]
    config["rope_local_base_freq"] = rope[SLIDING]["rope_theta"]
    linear = rope[FULL]["rope_type"] == "linear"
    config["rope_scaling"] = {"factor": rope[FULL]["factor"], "rope_type": "linear"} if linear else None
    config["torch_dtype"] = config.pop("dtype")
    config["cache_implementation"] = "hybrid"
    config["transformers_version"] = "4.50.0.dev0"
    return config


# ------------------------------------------------------------------------------------------------ GGUF

QUANTISED = {  # llama.cpp's name of each tensor of a block, and the type it is stored in
    "input_layernorm": ("attn_norm", "F32"),
    "self_attn.q_proj": ("attn_q", "Q4_0"),
    "self_attn.k_proj": ("attn_k", "Q8_0"),
    "self_attn.v_proj": ("attn_v", "F16"),
    "self_attn.o_proj": ("attn_output", "Q4_0"),
    "self_attn.q_norm": ("attn_q_norm", "F32"),
    "self_attn.k_norm": ("attn_k_norm", "F32"),
    "post_attention_layernorm": ("post_attention_norm", "F32"),
    "pre_feedforward_layernorm": ("ffn_norm", "F32"),
    "mlp.gate_proj": ("ffn_gate", "Q8_0"),
    "mlp.up_proj": ("ffn_up", "Q4_0"),
    "mlp.down_proj": ("ffn_down", "F32"),
    "post_feedforward_layernorm": ("post_ffw_norm", "F32"),
}


def gguf_name(parameter: str) -> tuple[str, str]:
    if parameter == "model.embed_tokens.weight":
        return "token_embd.weight", "Q8_0"
    if parameter == "model.norm.weight":
        return "output_norm.weight", "F32"
    _, _, block, module = parameter.removesuffix(".weight").split(".", 3)
    name, kind = QUANTISED[module]
    return f"blk.{block}.{name}.weight", kind


def build_gguf(root: Path):
    """tiny.gguf, and its dequantised weights as a float32 folder. Norm weights are stored + 1."""
    model = random_model("gguf")
    config = model.config
    path = gguf_file(root)
    path.parent.mkdir(parents=True)
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters[FULL]["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    tokenizer.write_gguf(writer)
    with torch.no_grad():
        for parameter, tensor in model.named_parameters():
            name, kind = gguf_name(parameter)
            kind = gguf.GGMLQuantizationType[kind]
            offset = 1.0 if "norm" in parameter else 0.0
            stored = gguf.quants.quantize((tensor + offset).numpy(), kind)
            writer.add_tensor(name, stored, raw_dtype=kind)
            tensor.copy_(torch.from_numpy(gguf.quants.dequantize(stored, kind)) - offset)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save(model, folder(root, "gguf", "float32"), has_tokenizer=True)
