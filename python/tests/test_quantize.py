"""`gemloupe quantize` and `gemloupe.quantize`: the GGUF file is the same model, and what the package gguf makes of the weights."""

import functools
import logging
import os
import resource
import shutil
import signal
import subprocess

import gguf
import numpy
import pytest
import torch

import gemloupe
from cli import executable, refused, run_json
from cli import run as run_cli
from conftest import token_ids
from gemloupe import StandardizedTransformer, quantize
from reference import checkpoints, wrappers

# A checkpoint of every text family, whose config a GGUF file can say.
FAMILIES = ["gemma", "gemma_mqa", "gemma2_gguf", "deep", "gguf", "softcap"]
FAMILIES += ["gemma4_e2b", "gemma4_31b", "gemma4_moe", "gemma4_unified"]
# The others, and the key that it cannot say.
REFUSED = {
    "mqa": "query_pre_attn_scalar is 12: its readers take 16",
    "untied": "attention_bias is true",
    "bidirectional": "cannot say that",
    "minimal": "query_pre_attn_scalar is 5",
    "gemma2": "query_pre_attn_scalar is 10",
    "gemma2_plain": "attention_bias",
    "gemma4_e4b": "attention_bias",
    "gemma4_odd": 'use_bidirectional_attention is "all"',
}
TEXTS = ["", " it is in the city", "  two   and\tthree\n\n\nlines", "<bos>of<end_of_turn>\n", "▁▁ é中文 🔍<unk>ß"]
Type = gguf.GGMLQuantizationType


@pytest.fixture(scope="module")
def written(zoo, tmp_path_factory):
    """The GGUF file of a tiny checkpoint, made once."""
    root = tmp_path_factory.mktemp("quantized")

    @functools.cache
    def of(name, type="q8_0", dtype="float32"):
        return quantize(zoo.folder(name, dtype), root / f"{name}-{type}-{dtype}.gguf", type)

    return of


def stored(path) -> dict:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def weights(model) -> dict:
    """The parameters, norms that count as 1 + weight as that sum: a GGUF file has the sum, and its last bits."""
    adds_one = not model.config.model_type.startswith("gemma4")
    return {name: 1 + w if adds_one and "norm" in name else w for name, w in model.named_parameters()}


# ------------------------------------------------------------------------------------------------ the same model


@pytest.mark.parametrize("name", FAMILIES)
def test_in_float32_it_is_the_same_model(zoo, written, name):
    folder, file = zoo.model(name), StandardizedTransformer(written(name, "f32"), attn_implementation="eager")
    expected, found = weights(folder), weights(file)
    assert list(found) == list(expected)
    for parameter, tensor in expected.items():
        assert torch.equal(found[parameter], tensor), parameter
    ids = token_ids(20, 390)
    # A product of experts' rows goes by how its weight is aligned.
    bound = 1e-4 if name == "gemma4_moe" else 0
    torch.testing.assert_close(file(ids), folder(ids), atol=bound, rtol=bound)


@pytest.mark.parametrize("name", FAMILIES)
def test_it_has_the_same_config(zoo, written, name):
    folder, file = (m.config.to_dict() for m in (zoo.model(name), StandardizedTransformer(written(name))))
    # The file's name of a kind, the reference's version, and what has no effect on this model.
    others = {"transformers_version", "attn_logit_softcapping", "use_bidirectional_attention", "dtype"}
    if name == "gemma4_unified":
        others |= {"model_type", "architectures"}
    for key in folder.keys() - others:
        if key == "rope_parameters" and name.startswith("gemma4"):
            assert file[key]["sliding_attention"] == folder[key]["sliding_attention"]
            share = folder[key]["full_attention"]["partial_rotary_factor"]
            width = next(iter(folder["per_layer_config"].values()))["head_dim"]
            assert int(file[key]["full_attention"]["partial_rotary_factor"] * width / 2 + 1e-9) == int(
                share * width / 2
            )
        elif key == "rms_norm_eps":
            assert numpy.float32(file[key]) == numpy.float32(folder[key])
        else:
            assert file[key] == folder[key], key


@pytest.mark.parametrize("name", FAMILIES)
def test_it_has_the_same_tokenizer(zoo, written, name):
    folder, file = zoo.model(name).tokenizer, StandardizedTransformer(written(name)).tokenizer
    for text in TEXTS:
        ids = folder.encode(text)
        assert file.encode(text) == ids, text
        assert file.decode(ids) == folder.decode(ids)
    chat = [{"role": "user", "content": "it is"}]
    assert file.apply_chat_template(chat, tokenize=False) == folder.apply_chat_template(chat, tokenize=False)
    reader = gguf.GGUFReader(written(name))
    kind = "gemma4" if name.startswith("gemma4") else "llama"
    assert reader.fields["tokenizer.ggml.model"].contents() == kind
    assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == zoo.model(name).config.vocab_size


EACH = [
    (name, dtype) for name in FAMILIES for dtype in ("float32", "bfloat16") if (name, dtype) != ("gguf", "bfloat16")
]


@pytest.mark.parametrize("name, dtype", EACH)
def test_its_blocks_are_the_package_s(zoo, written, name, dtype):
    """Every tensor: what gguf.quants.quantize makes of the checkpoint's own."""
    folder = zoo.model(name, dtype)
    plain = stored(written(name, "f32", dtype))  # whose tensors are the checkpoint's, as the test above says
    found = stored(written(name, "q8_0", dtype))
    assert list(found) == list(plain)
    quantised = 0
    for tensor, quantized_tensor in zip(plain.values(), found.values(), strict=True):
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = quantized_tensor.tensor_type
        if len(tensor.shape) < 2 or tensor.name.endswith("ffn_gate_inp.weight"):
            assert kind == Type.F32, tensor.name
        elif tensor.shape[0] % 32 == 0:
            assert kind == Type.Q8_0, tensor.name
            quantised += 1
        else:
            assert kind == (Type.BF16 if dtype == "bfloat16" else Type.F32), tensor.name
        expected = gguf.quants.quantize(values, kind)
        assert quantized_tensor.data.tobytes() == expected.tobytes(), tensor.name
        if kind == Type.Q8_0:
            step = numpy.abs(values.reshape(-1, 32)).max(1, keepdims=True) / 127
            error = gguf.quants.dequantize(quantized_tensor.data, kind).reshape(-1, 32) - values.reshape(-1, 32)
            assert (numpy.abs(error) <= step * 0.57).all(), tensor.name  # half a step, and the scale's own rounding
    assert quantised or folder.config.hidden_size % 32


def test_a_quantised_model_computes_with_the_package_s_weights(zoo, written):
    model = StandardizedTransformer(written("gguf"), attn_implementation="eager")
    same = StandardizedTransformer(zoo.folder("gguf"), attn_implementation="eager")
    for name, weight in same.named_parameters():
        if weight.dim() == 2:
            blocks = gguf.quants.quantize(weight.numpy(), Type.Q8_0)
            weight[:] = torch.from_numpy(gguf.quants.dequantize(blocks, Type.Q8_0)).reshape(weight.shape)
        assert torch.equal(weights(model)[name], weights(same)[name]), name
    ids = token_ids(20, 390)
    torch.testing.assert_close(model(ids), same(ids), atol=1e-5, rtol=1e-5)
    plain = zoo.model("gguf")(ids)
    assert 0 < (model(ids) - plain).abs().max() < 0.1 * plain.abs().max()


@pytest.mark.parametrize("type", ["BF16", "f16", "f32"])
def test_other_types(written, type):
    kind = Type[type.upper()]
    plain, found = stored(written("gemma", "f32")), stored(written("gemma", type))
    for name, tensor in found.items():
        assert tensor.tensor_type == (kind if len(tensor.shape) > 1 else Type.F32)
        expected = gguf.quants.quantize(numpy.array(plain[name].data, dtype=numpy.float32), tensor.tensor_type)
        assert tensor.data.tobytes() == expected.tobytes(), name


def test_what_the_file_says_of_itself(zoo, written, tmp_path):
    folder = tmp_path / "my-gemma"
    shutil.copytree(zoo.folder("gguf"), folder)
    reader = gguf.GGUFReader(quantize(folder, tmp_path / "m.gguf"))
    said = {key: field.contents() for key, field in reader.fields.items() if key.startswith("general.")}
    assert said == {
        "general.architecture": "gemma3",
        "general.type": "model",
        "general.name": "my-gemma",
        "general.file_type": gguf.LlamaFileType.MOSTLY_Q8_0,
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
    }
    assert all(tensor.data_offset % 32 == 0 for tensor in reader.tensors)


def test_a_gguf_file_again(zoo, written, tmp_path):
    """What is in the type already stays; norms are not made 1 larger a second time."""
    again = quantize(written("gguf"), tmp_path / "again.gguf")
    assert again.read_bytes() == written("gguf").read_bytes()
    wide = stored(quantize(checkpoints.gguf_file(zoo.root), tmp_path / "wide.gguf", "f32"))
    for name, tensor in stored(checkpoints.gguf_file(zoo.root)).items():
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert wide[name].data.tobytes() == expected.astype(numpy.float32).tobytes(), name


def test_shards_and_released_spellings(zoo, written, tmp_path):
    for variant in ("sharded", "released"):
        other = quantize(zoo.folder("deep", variant=variant), tmp_path / f"{variant}.gguf")
        expected = stored(written("deep"))
        for name, tensor in stored(other).items():
            assert tensor.data.tobytes() == expected[name].data.tobytes(), name


@pytest.mark.parametrize("name", ["gemma3", "gemma4_e2b", "gemma4_26b", "gemma4_unified", "paligemma1", "paligemma2"])
def test_of_a_multimodal_checkpoint_the_text_model(tmp_path, caplog, name):
    folder = wrappers.build(tmp_path, name, "float32")
    if name in ("gemma3", "paligemma2"):  # their query scale is not the head's width
        with pytest.raises(gemloupe.BadConfig, match="query_pre_attn_scalar"):
            quantize(folder, tmp_path / "m.gguf", "f32")
        config = folder / "config.json"
        text = config.read_text()
        config.write_text(
            text.replace('"query_pre_attn_scalar": 12', '"query_pre_attn_scalar": 16').replace(
                '"query_pre_attn_scalar": 10', '"query_pre_attn_scalar": 16'
            )
        )
    with caplog.at_level(logging.WARNING, "gemloupe"):
        file = quantize(folder, tmp_path / "m.gguf", "f32")
    assert "weights of towers and projectors are left out" in caplog.text
    whole = StandardizedTransformer(folder, attn_implementation="eager", final_logit_softcapping="config")
    ids = token_ids(17, 389)
    # PaliGemma's positions count from 1: its text model alone turns by one position less.
    torch.testing.assert_close(
        StandardizedTransformer(file, attn_implementation="eager")(ids), whole(ids), atol=1e-4, rtol=1e-4
    )


def test_a_turn_s_end_ends_a_text_there_too(zoo, tmp_path):
    folder = tmp_path / "it"
    shutil.copytree(zoo.folder("gguf"), folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 6]}')
    model = StandardizedTransformer(quantize(folder, tmp_path / "it.gguf"))
    assert model.config.eos_token_id == [1, 6]
    assert model.tokenizer.eos_token_id == 1


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("name", REFUSED)
def test_a_config_that_a_gguf_file_cannot_say(zoo, tmp_path, name):
    with pytest.raises(gemloupe.BadConfig) as refusal:
        quantize(zoo.folder(name), tmp_path / "m.gguf")
    assert REFUSED[name] in str(refusal.value)
    assert str(zoo.folder(name)) in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_what_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(gemloupe.BadOption, match="the type 'q4_0' is none of 'q8_0', 'bf16', 'f16' and 'f32'"):
        quantize("/nowhere", tmp_path / "m.gguf", "q4_0")
    with pytest.raises(gemloupe.BadOption, match=r"does not end with \.gguf"):
        quantize("/nowhere", tmp_path / "m.bin")
    with pytest.raises(gemloupe.NotFound):
        quantize("/nowhere", tmp_path / "m.gguf")


def test_the_source_is_not_overwritten(written, tmp_path):
    file = tmp_path / "m.gguf"
    shutil.copy(written("gguf", "f32"), file)
    link = tmp_path / "link.gguf"
    link.symlink_to(file)
    before = file.read_bytes()
    for target in (file, link, tmp_path / "." / "m.gguf"):
        with pytest.raises(gemloupe.CannotWrite, match="is a file of the checkpoint that is read"):
            quantize(file, target)
    assert file.read_bytes() == before


def test_where_it_cannot_be_written(zoo, tmp_path):
    with pytest.raises(gemloupe.CannotWrite, match="the folder .* does not exist"):
        quantize(zoo.folder("gemma"), tmp_path / "none" / "m.gguf")
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(gemloupe.CannotWrite, match="it is a folder"):
        quantize(zoo.folder("gemma"), tmp_path / "folder.gguf")
    full = tmp_path / "full.gguf"
    full.symlink_to("/dev/full")
    with pytest.raises(gemloupe.CannotWrite, match="No space left on device"):
        quantize(zoo.folder("gemma"), full)


def test_weights_that_are_missing_or_left_over(zoo, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "gemma"
    shutil.copytree(zoo.folder("gemma"), folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"model.layers.0.lora.weight": torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(gemloupe.BadCheckpoint, match="no place for"):
        quantize(folder, tmp_path / "m.gguf")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(gemloupe.BadCheckpoint, match="missing"):
        quantize(folder, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_tokenizer_that_a_gguf_file_cannot_say(zoo, tmp_path):
    folder = tmp_path / "gemma"
    shutil.copytree(zoo.folder("gemma"), folder)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"ignore_merges": false', '"ignore_merges": true'))
    with pytest.raises(gemloupe.BadTokenizer, match="which a GGUF file cannot say"):
        quantize(folder, tmp_path / "m.gguf")
    path.unlink()
    model = StandardizedTransformer(quantize(folder, tmp_path / "m.gguf"))
    with pytest.raises(gemloupe.NotFound, match="no tokenizer"):
        model.tokenizer.encode("it")


# ------------------------------------------------------------------------------------------------ the command


def test_the_command(zoo, written, tmp_path):
    out = tmp_path / "m.gguf"
    said = run_json("quantize", zoo.folder("gguf"), out)
    assert out.read_bytes().replace(b"single", b"") == written("gguf").read_bytes().replace(b"single", b"")
    assert said == {"path": str(out), "type": "q8_0", "tensors": 93, "bytes": out.stat().st_size}
    line = run_cli("quantize", zoo.folder("gguf"), out, "--type", "bf16")
    assert line == f"{out}: 93 tensors, {out.stat().st_size} bytes\n"
    assert stored(out)["blk.0.attn_q.weight"].tensor_type == Type.BF16


def test_the_command_says_what_is_not_quantised(zoo, tmp_path):
    command = [executable(), "quantize", str(zoo.folder("gemma")), str(tmp_path / "m.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "matrices whose rows are no multiple of 32 are not quantised, such as 'token_embd.weight'" in done.stderr
    assert not subprocess.run([*command, "--quiet"], capture_output=True, timeout=120, check=True).stderr


def test_what_the_command_refuses(zoo, tmp_path):
    out = tmp_path / "m.gguf"
    refused(1, "quantize", zoo.folder("mqa"), out, words=["query_pre_attn_scalar is 12"])
    refused(2, "quantize", zoo.folder("gguf"), out, "--type", "q5", words=["'q5'", "'q8_0'"])
    refused(2, "quantize", zoo.folder("gguf"), tmp_path / "m.txt", words=["OUT.gguf"])
    refused(2, "quantize", zoo.folder("gguf"), words=["OUT"])
    refused(1, "quantize", zoo.folder("gguf"), tmp_path / "none" / "m.gguf", words=["does not exist"])
    assert not out.exists()


def test_ctrl_c_leaves_nothing(zoo, tmp_path):
    """A pipe that nobody reads on holds the command in the middle of the file."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    command = [executable(), "quantize", str(zoo.folder("gguf")), str(pipe), "--type", "f32"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with pipe.open("rb") as reader:
            assert reader.read(4) == b"GGUF"
            process.send_signal(signal.SIGINT)
            reader.read()
        assert process.wait(60) == 130
        assert "interrupted" in process.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.gguf"]


def test_a_limit_for_files_leaves_nothing(zoo, tmp_path):
    command = [executable(), "quantize", str(zoo.folder("gguf")), str(tmp_path / "m.gguf"), "--type", "f32"]
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False)
    assert done.returncode == 1 and "m.gguf" in done.stderr and "File too large" in done.stderr
    assert not list(tmp_path.iterdir())
