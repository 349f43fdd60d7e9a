"""Writes tests/data/gguf/: small GGUF files and what the PyPI package gguf makes of them.

    python tools/make_gguf_vectors.py [FOLDER]

vectors.gguf holds, for each element type, a tensor NAME of blocks (random ones, and ones with every special scale:
zeros, subnormals, infinities, quiet and signalling NaNs; but never a NaN added to a NaN: which one is kept differs
between numpy's own code for different processors) and a float32 tensor NAME.expected, gguf.quants.dequantize's bits.
metadata.gguf holds a key of each metadata type and a small vocabulary. quantized.gguf holds floats (halves between two steps,
scales that are subnormal, zero or too large, infinities) and what gguf.quants.quantize makes of them. The output is the same on
every run.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

SPECIAL = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE55, 0x7D01, 0x3C00]
ROW = 2  # blocks in a row

# Where the float16 scales lie in a block.
SCALES = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
}


def exponent(half):
    return half >> 10 & 31


def is_nan(half):
    return exponent(half) == 31 and half & 1023 != 0


def blocks(kind, random):
    """Random blocks whose scales are every special value (two scales: every pair, or some pairs for large blocks)."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    at = SCALES[kind]
    if len(at) == 1:
        scales = [[d] for d in SPECIAL]
    elif elements == 32:
        scales = [[d, m] for d in SPECIAL for m in SPECIAL if not (exponent(d) == 31 and is_nan(m))]
    else:
        scales = [[d, SPECIAL[(i + shift) % len(SPECIAL)]] for i, d in enumerate(SPECIAL) for shift in (2, 11)]
    scales += random.normal(0, 0.1, (4 + len(scales) % ROW, len(at))).astype(np.float16).view(np.uint16).tolist()
    out = random.integers(0, 256, (len(scales), size), dtype=np.uint8)
    out[:2, 2 : size - 2] = np.array([[0x00], [0xFF]], dtype=np.uint8)
    for column, offset in enumerate(at):
        halves = np.array([row[column] for row in scales], dtype="<u2")
        out[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    return out.reshape(-1, ROW * size)


def write_vectors(path):
    random = np.random.default_rng(20)
    writer = gguf.GGUFWriter(path, "vectors")
    for kind in SCALES:
        data = blocks(kind, random)
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(data, kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.expected", expected)
    halves = np.array(SPECIAL + [0x03FF, 0x7C01, 0xFFFF, 0xC000], dtype="<u2").view(np.float16)
    writer.add_tensor("F16", halves)
    writer.add_tensor("F16.expected", gguf.quants.dequantize(halves, Type.F16))
    bfloats = np.array([0, 0x8000, 1, 0x807F, 0x3F80, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xC2F7], dtype="<u2")
    bfloats = bfloats.view(np.uint8)
    writer.add_tensor("BF16", bfloats, raw_dtype=Type.BF16)
    writer.add_tensor("BF16.expected", gguf.quants.dequantize(bfloats, Type.BF16))
    finish(writer)


def write_metadata(path):
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_custom_alignment(64)
    numbers = {
        "u8": (Value.UINT8, 255),
        "i8": (Value.INT8, -128),
        "u16": (Value.UINT16, 65535),
        "i16": (Value.INT16, -32768),
        "u32": (Value.UINT32, 2**32 - 1),
        "i32": (Value.INT32, -(2**31)),
        "u64": (Value.UINT64, 2**64 - 1),
        "i64": (Value.INT64, -(2**63)),
        "f32": (Value.FLOAT32, 1.5),
        "f64": (Value.FLOAT64, 0.1),
        "yes": (Value.BOOL, True),
        "no": (Value.BOOL, False),
        "text": (Value.STRING, "loupe ▁ 🔍"),
    }
    for name, (kind, value) in numbers.items():
        writer.add_key_value(f"test.{name}", value, kind)
    writer.add_array("test.ints", [1, 2, 3])
    writer.add_array("test.texts", ["a", "", "ß"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<pad>", "<eos>", "<bos>", "<unk>", "▁a", "a token longer than fifteen bytes"])
    writer.add_token_scores([-1000.0, -1000.0, -1000.0, -1000.0, -1.5, -2.5])
    writer.add_token_types([3, 3, 3, 2, 1, 1])
    writer.add_token_merges(["▁ a", "a a"])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template("{{ bos_token }}{{ messages }}")
    writer.add_tensor("cube", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    writer.add_tensor("ids", np.arange(6, dtype=np.int64).reshape(3, 2))
    finish(writer)


def write_quantized(path):
    random = np.random.default_rng(21)
    plain = random.standard_normal((24, 32)) * 10.0 ** random.uniform(-42, 38, (24, 1))
    steps = np.stack([np.arange(-127, -95), np.arange(-16, 16), np.arange(96, 128)]) / 2
    steps[:, 0] = 127  # the scale is 1
    halves = np.array(SPECIAL + [0x03FF, 0x0401, 0x3BFF, 0x7BFE], dtype="<u2").view(np.float16).astype(np.float64)
    halves = halves[np.isfinite(halves)]
    between = (np.resize(halves, 32) + np.resize(np.roll(halves, 1), 32)) / 2
    special = np.zeros((4, 32))
    special[1, 3], special[2, 4], special[3, 5] = np.inf, -np.inf, 1e-45
    with np.errstate(all="ignore"):
        values = np.concatenate([plain, steps, np.resize(halves, (1, 32)), between[None], special]).astype(np.float32)
        writer = gguf.GGUFWriter(path, "vectors")
        writer.add_tensor("values", values)
        for kind in (Type.Q8_0, Type.F16, Type.BF16, Type.F32):
            writer.add_tensor(kind.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests/data/gguf"
    folder.mkdir(parents=True, exist_ok=True)
    write_vectors(folder / "vectors.gguf")
    write_metadata(folder / "metadata.gguf")
    write_quantized(folder / "quantized.gguf")


if __name__ == "__main__":
    main()
