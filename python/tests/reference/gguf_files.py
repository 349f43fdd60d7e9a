"""A tiny checkpoint as llama.cpp's converter writes it: float32, without a vocabulary.

write(path, model)          # Gemma 1, 2 and 4; Gemma 3's, quantised, is in checkpoints.py
"""

from pathlib import Path

import gguf
import torch
from gguf.constants import MODEL_ARCH

ARCHITECTURES = {
    "gemma": MODEL_ARCH.GEMMA,
    "gemma2": MODEL_ARCH.GEMMA2,
    "gemma4_text": MODEL_ARCH.GEMMA4,
    "gemma4_unified_text": MODEL_ARCH.GEMMA4,
}
SCALES = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}


def write(path: Path, model) -> None:
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "final_logit_softcapping", None) is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if getattr(config, "sliding_window", None) is not None:
        writer.add_sliding_window(config.sliding_window)
    is_gemma4 = architecture == MODEL_ARCH.GEMMA4
    (add_gemma4 if is_gemma4 else add_plain)(writer, model)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    scalars = {name: tensor for name, tensor in model.named_buffers() if name.endswith("layer_scalar")}
    for parameter, tensor in (dict(model.named_parameters()) | scalars).items():
        gain_is_one_more = "norm" in parameter and not is_gemma4
        stored = tensor.detach().float() + (1.0 if gain_is_one_more else 0.0)
        writer.add_tensor(tensor_name(names, parameter), stored.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor_name(names: gguf.TensorNameMap, parameter: str) -> str:
    for ending, short in SCALES.items():
        if parameter.endswith(ending):
            return f"blk.{parameter.split('.')[2]}.{short}"
    # The parameters that are no module's `weight` get that ending, as the converter gives it to them.
    name = names.get_name(parameter.removesuffix(".weight"), try_suffixes=(".weight",))
    assert name, parameter
    return f"{name}.weight"


def add_plain(writer: gguf.GGUFWriter, model) -> None:
    config = model.config
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    if getattr(config, "attn_logit_softcapping", None) is not None:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)


def add_gemma4(writer: gguf.GGUFWriter, model) -> None:
    """key_length is the full blocks'; sizes that differ between blocks are arrays; rope_freqs says what turns."""
    config = model.config
    full = [kind == "full_attention" for kind in config.layer_types]
    of_full, sliding = (config.per_layer_config[full.index(is_full)] for is_full in (True, False))
    heads = [config.per_layer_config[i].num_key_value_heads for i in range(len(full))]
    inner = [layer.mlp.intermediate_size for layer in model.model.layers]
    writer.add_feed_forward_length(inner if len(set(inner)) > 1 else inner[0])
    writer.add_head_count_kv(heads if len(set(heads)) > 1 else heads[0])
    writer.add_key_length(of_full.head_dim)
    writer.add_value_length(of_full.head_dim)
    writer.add_key_length_swa(sliding.head_dim)
    writer.add_value_length_swa(sliding.head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    writer.add_sliding_window_pattern([not kind for kind in full])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(getattr(config, "hidden_size_per_layer_input", 0))
    if getattr(config, "enable_moe_block", False):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    pairs = of_full.head_dim // 2
    turning = int(rope["full_attention"]["partial_rotary_factor"] * of_full.head_dim // 2)
    writer.add_tensor("rope_freqs.weight", torch.tensor([1.0] * turning + [1e30] * (pairs - turning)).numpy())
