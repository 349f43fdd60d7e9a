"""A Gemma 4 checkpoint as llama.cpp's converter writes it: float32, no vocabulary."""

from pathlib import Path

import gguf
import torch
from gguf.constants import MODEL_ARCH

SCALES = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}


def tensor_name(names: gguf.TensorNameMap, parameter: str) -> str:
    for ending, short in SCALES.items():
        if parameter.endswith(ending):
            return f"blk.{parameter.split('.')[2]}.{short}"
    # The parameters that are no module's `weight` get that ending, as the converter gives it to them.
    name = names.get_name(parameter.removesuffix(".weight"), try_suffixes=(".weight",))
    assert name, parameter
    return f"{name}.weight"


def write(path: Path, model) -> None:
    config = model.config
    full = [kind == "full_attention" for kind in config.layer_types]
    of_full = config.per_layer_config[full.index(True)]
    heads = [config.per_layer_config[i].num_key_value_heads for i in range(len(full))]
    inner = [layer.mlp.intermediate_size for layer in model.model.layers]
    sliding = config.per_layer_config[full.index(False)]
    writer = gguf.GGUFWriter(path, "gemma4")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(inner if len(set(inner)) > 1 else inner[0])
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(heads if len(set(heads)) > 1 else heads[0])
    writer.add_key_length(of_full.head_dim)
    writer.add_value_length(of_full.head_dim)
    writer.add_key_length_swa(sliding.head_dim)
    writer.add_value_length_swa(sliding.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([not kind for kind in full])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(getattr(config, "hidden_size_per_layer_input", 0))
    if config.final_logit_softcapping is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if getattr(config, "enable_moe_block", False):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    pairs = of_full.head_dim // 2
    share = config.rope_parameters["full_attention"]["partial_rotary_factor"]
    turning = int(share * of_full.head_dim // 2)
    writer.add_tensor("rope_freqs.weight", torch.tensor([1.0] * turning + [1e30] * (pairs - turning)).numpy())
    names = gguf.get_tensor_name_map(MODEL_ARCH.GEMMA4, config.num_hidden_layers)
    scalars = {name: tensor for name, tensor in model.named_buffers() if name.endswith("layer_scalar")}
    for parameter, tensor in (dict(model.named_parameters()) | scalars).items():
        writer.add_tensor(tensor_name(names, parameter), tensor.detach().float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
