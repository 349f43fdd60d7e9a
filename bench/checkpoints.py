"""The models that are measured, made on the spot in build/bench/ with random weights of fixed seeds.

A checkpoint is written tensor by tensor, so that making the 2 GB one takes a small part of that in memory.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"

# The config.json of google/gemma-3-1b-pt, key by key.
GEMMA3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": 1,
    "final_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "initializer_range": 0.02,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 262144,
}

#: The sizes of google/gemma-3-270m, which has everything else as the 1B has it.
GEMMA3_270M = GEMMA3_1B | {"hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18}

TINY = GEMMA3_1B | {
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "query_pre_attn_scalar": 16,
    "sliding_window": 32,
    "torch_dtype": "float32",
    "vocab_size": 1024,
}

#: The config.json of google/gemma-2-2b, but for the keys that have the reference's defaults.
GEMMA2_2B: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2304,
    "initializer_range": 0.02,
    "intermediate_size": 9216,
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 256000,
}

#: name -> (config, with the real tokenizer?)
MODELS = {"1b": (GEMMA3_1B, True), "2b": (GEMMA2_2B, False), "270m": (GEMMA3_270M, False), "tiny": (TINY, False)}
#: The blocks of the 270M, so many of them, behind a small vocabulary: what growth.py counts layers with.
LAYERS = (1, 2, 4, 8, 16, 32)
MODELS |= {
    f"layers-{count}": (GEMMA3_270M | {"num_hidden_layers": count, "vocab_size": 16384}, False) for count in LAYERS
}
#: name -> (the model whose weights are in a GGUF file, quantised how; None is the real one of `make demo`)
GGUF_MODELS = {"1b-q8_0": ("1b", "Q8_0"), "270m-q4_k_m": (None, "Q4_K_M")}


def path_for(peer: str, model: str) -> Path:
    """What this peer loads for a model: a checkpoint's folder, or a GGUF file with the same weights."""
    if model in GGUF_MODELS:
        source, kind = GGUF_MODELS[model]
        return demo_model() if source is None else gguf_file(source, kind)
    return gguf_file(model, "BF16") if peer == "llamacpp" else checkpoint(model)


def config_of(model: str) -> dict[str, Any]:
    """The sizes of any model that is measured."""
    if model in GGUF_MODELS:
        return config_of(GGUF_MODELS[model][0] or "270m")
    return MODELS[model][0]


def gguf_file(model: str, kind: str) -> Path:
    """That checkpoint's weights as a GGUF file, made if it is not there yet or older than they are."""
    folder = checkpoint(model)
    path = FOLDER / f"{model}-{kind.lower()}.gguf"
    if not path.exists() or path.stat().st_mtime < (folder / "model.safetensors").stat().st_mtime:
        print(f"Making {path.relative_to(ROOT)}", file=sys.stderr)
        import gguf_files

        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            made = Path(scratch) / path.name
            gguf_files.write(made, folder, kind, vocabulary=demo_model() if MODELS[model][1] else None)
            made.rename(path)
    return path


@functools.cache
def demo_model() -> Path:
    """The real Gemma 3 270M as a GGUF file, fetched if it is not there yet."""
    found = subprocess.run(
        [sys.executable, ROOT / "tools" / "demo_model.py"], check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(found.stdout.strip())


def checkpoint(name: str) -> Path:
    """The folder of that model, made if it is not there yet."""
    config, with_tokenizer = MODELS[name]
    folder = FOLDER / name
    if folder.exists() and json.loads((folder / "config.json").read_text()) == config:
        return folder
    print(f"Making {folder.relative_to(ROOT)} (random weights)", file=sys.stderr)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        made = Path(scratch) / name
        made.mkdir()
        (made / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        write_weights(made / "model.safetensors", gemma_tensors(config), config["torch_dtype"])
        if with_tokenizer:
            for file in tokenizer().iterdir():
                shutil.copy(file, made / file.name)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder


def weight_bytes(path: Path) -> int:
    """Of a folder, or of a GGUF file."""
    return sum(file.stat().st_size for file in path.glob("*.safetensors")) if path.is_dir() else path.stat().st_size


def gemma_tensors(config: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """(name, shape) of every weight of a Gemma 2 or 3 text model, in the order of the file."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = dim * config["num_attention_heads"], dim * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        yield block + "input_layernorm.weight", [hidden]
        yield block + "mlp.down_proj.weight", [hidden, inner]
        yield block + "mlp.gate_proj.weight", [inner, hidden]
        yield block + "mlp.up_proj.weight", [inner, hidden]
        yield block + "post_attention_layernorm.weight", [hidden]
        yield block + "post_feedforward_layernorm.weight", [hidden]
        yield block + "pre_feedforward_layernorm.weight", [hidden]
        if config["model_type"] != "gemma2":
            yield block + "self_attn.k_norm.weight", [dim]
        yield block + "self_attn.k_proj.weight", [keys, hidden]
        yield block + "self_attn.o_proj.weight", [hidden, queries]
        if config["model_type"] != "gemma2":
            yield block + "self_attn.q_norm.weight", [dim]
        yield block + "self_attn.q_proj.weight", [queries, hidden]
        yield block + "self_attn.v_proj.weight", [keys, hidden]
    yield "model.norm.weight", [hidden]


def write_weights(path: Path, tensors: Iterator[tuple[str, list[int]]], dtype: str) -> None:
    """A safetensors file of normal random numbers: a header of JSON, then the tensors one after another."""
    import torch

    kind = getattr(torch, dtype)
    size = torch.empty(0, dtype=kind).element_size()
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    counts, end = [], 0
    for name, shape in tensors:
        count, begin = math.prod(shape), end
        end += count * size
        counts.append(count)
        header[name] = {"dtype": "BF16" if size == 2 else "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = torch.Generator().manual_seed(20250312)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for count in counts:
            for begin in range(0, count, 1 << 24):
                part = torch.randn(min(1 << 24, count - begin), generator=random).mul_(GEMMA3_1B["initializer_range"])
                file.write(part.to(kind).view(torch.uint8).numpy())


def tokenizer() -> Path:
    """A folder with Gemma 3's tokenizer.json, derived from the demo's GGUF file by transformers."""
    folder = FOLDER / "tokenizer"
    if (folder / "tokenizer.json").exists():
        return folder
    from transformers import AutoTokenizer

    gguf = demo_model()
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        made = Path(scratch) / "tokenizer"
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(made)
        made.rename(folder)
    return folder
