"""Writes a checkpoint's weights as a GGUF file, so that llama.cpp runs the same ones.

What llama.cpp's own converter does for Gemma 2 and 3: norms are stored as 1 + weight in float32, matrices as they are or
quantised by rows. Tensors are written one after another, so that a model of 5 GB takes a small part of that in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy
import torch
from safetensors import safe_open

ROWS = 1 << 15  # quantised at once


def write(path: Path, folder: Path, kind: str, vocabulary: Path | None) -> None:
    """`kind` of the matrices is BF16, or a type that the gguf package can quantise to (Q8_0). The vocabulary is copied from
    another GGUF file; without one the file is for token ids alone."""
    config = json.loads((folder / "config.json").read_text())
    name = config["model_type"].removesuffix("_text")
    writer = gguf.GGUFWriter(path, name)
    _write_sizes(writer, config)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    if vocabulary is None:
        writer.add_tokenizer_model("none")
        writer.add_vocab_size(config["vocab_size"])
    else:
        _copy_vocabulary(writer, vocabulary)
    with safe_open(folder / "model.safetensors", "pt") as file:
        names = _names(file.keys(), name, config["num_hidden_layers"])
        matrices = gguf.GGMLQuantizationType[kind]
        for theirs, ours in names.items():
            shape = file.get_slice(ours).get_shape()
            _announce(writer, theirs, shape, matrices if len(shape) > 1 else gguf.GGMLQuantizationType.F32)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for ours in names.values():
            tensor = file.get_tensor(ours)
            writer.write_tensor_data(_data(tensor, matrices) if tensor.dim() > 1 else (1 + tensor.float()).numpy())
    writer.close()


def _write_sizes(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_sliding_window(config["sliding_window"])
    if config["attn_logit_softcapping"]:
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _copy_vocabulary(writer: gguf.GGUFWriter, source: Path) -> None:
    for field in gguf.GGUFReader(source).fields.values():
        if field.name.startswith("tokenizer."):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)


def _names(ours: Iterator[str] | list[str], architecture: str, layers: int) -> dict[str, str]:
    """llama.cpp's name of each tensor -> the checkpoint's."""
    kind = next(arch for arch, text in gguf.MODEL_ARCH_NAMES.items() if text == architecture)
    known = gguf.get_tensor_name_map(kind, layers)
    return {f"{known.get_name(name.removesuffix('.weight'))}.weight": name for name in ours}


def _announce(writer: gguf.GGUFWriter, name: str, shape: list[int], kind: gguf.GGMLQuantizationType) -> None:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = int(numpy.prod(shape))
    if kind == gguf.GGMLQuantizationType.F32:
        writer.add_tensor_info(name, shape, numpy.dtype(numpy.float32), count * 4)
        return
    shape_in_bytes = [*shape[:-1], shape[-1] // block * size]
    writer.add_tensor_info(name, shape_in_bytes, numpy.dtype(numpy.uint8), count // block * size, raw_dtype=kind)


def _data(matrix: torch.Tensor, kind: gguf.GGMLQuantizationType) -> numpy.ndarray:
    if kind == gguf.GGMLQuantizationType.BF16:
        return matrix.to(torch.bfloat16).view(torch.uint8).numpy()
    parts = [gguf.quants.quantize(part.float().numpy(), kind) for part in matrix.split(ROWS)]
    return numpy.concatenate(parts)
