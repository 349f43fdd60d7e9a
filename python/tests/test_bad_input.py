"""Bad input gets one clear error that names the file or the value, what was expected and what was found."""

import json
import re
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import gemloupe
from conftest import token_ids
from gemloupe import StandardizedTransformer
from helpers import logits_of
from reference import checkpoints
from reference.bits import assert_equal_bits


@pytest.fixture
def folder(zoo, tmp_path):
    return shutil.copytree(zoo.folder("mqa"), tmp_path / "model")


@pytest.fixture
def sharded(zoo, tmp_path):
    return shutil.copytree(zoo.folder("mqa", variant="sharded"), tmp_path / "model")


@pytest.fixture(scope="module")
def model(zoo):
    return zoo.model("mqa")


def refused(kind, *words):
    """An error of this kind whose message has all these words."""
    return pytest.raises(kind, match="".join(rf"(?=(.|\n)*{word})" for word in words))


# ------------------------------------------------------------------------------------------------ safetensors


def header_of(data: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def rewritten(folder, change):
    """model.safetensors with its header changed by `change(header)`."""
    path = folder / "model.safetensors"
    header, body = header_of(path.read_bytes())
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def entries(header):
    return [entry for name, entry in sorted(header.items()) if name != "__metadata__"]


def overlap(header):
    first, second = sorted(entries(header), key=lambda entry: entry["data_offsets"][0])[:2]
    size = second["data_offsets"][1] - second["data_offsets"][0]
    start = first["data_offsets"][0]
    second["data_offsets"] = [start, start + size]


def beyond_the_end(header):
    last = max(entries(header), key=lambda entry: entry["data_offsets"][1])
    last["data_offsets"] = [offset + (1 << 20) for offset in last["data_offsets"]]


def backwards(header):
    entries(header)[0]["data_offsets"].reverse()


def huge_shape(header):
    entries(header)[0]["shape"] = [1 << 62, 1 << 62]


def negative_shape(header):
    entries(header)[0]["shape"][0] *= -1


def strange_dtype(header):
    entries(header)[0]["dtype"] = "F37"


def no_shape(header):
    del entries(header)[0]["shape"]


CHANGES = [overlap, beyond_the_end, backwards, huge_shape, negative_shape, strange_dtype, no_shape]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_header_that_lies(folder, change):
    rewritten(folder, change)
    with refused(gemloupe.BadCheckpoint, "model.safetensors"):
        StandardizedTransformer(folder)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 0.5, 0.999])
def test_a_truncated_file(folder, kept):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: kept if isinstance(kept, int) else int(len(data) * kept)])
    with refused(gemloupe.BadCheckpoint, "model.safetensors"):
        StandardizedTransformer(folder)


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 1 << 40, 1])
def test_a_header_of_impossible_length(folder, length):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    with refused(gemloupe.BadCheckpoint, "model.safetensors"):
        StandardizedTransformer(folder)


def test_a_header_that_is_no_json(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff[[["
    path.write_bytes(data)
    with refused(gemloupe.BadCheckpoint, "model.safetensors"):
        StandardizedTransformer(folder)


def test_a_shape_that_contradicts_the_config(folder):
    def change(header):
        header["model.layers.2.mlp.up_proj.weight"]["shape"].reverse()

    rewritten(folder, change)
    with refused(gemloupe.BadCheckpoint, r"layers\.2\.mlp\.up_proj\.weight", "80", "48"):
        StandardizedTransformer(folder)


def test_a_config_that_contradicts_the_weights(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    with refused(gemloupe.BadCheckpoint, r"layers\.0\.mlp", "96", "80"):
        StandardizedTransformer(folder)


def test_a_missing_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.3.self_attn.k_norm.weight"]
    save_file(tensors, folder / "model.safetensors")
    with refused(gemloupe.BadCheckpoint, r"layers\.3\.self_attn\.k_norm\.weight"):
        StandardizedTransformer(folder)


def test_bytes_that_belong_to_no_tensor(folder):
    rewritten(folder, lambda header: header.pop("model.layers.3.self_attn.k_norm.weight"))
    with refused(gemloupe.BadCheckpoint, r"model\.safetensors"):
        StandardizedTransformer(folder)


def test_a_tensor_without_a_place(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"model.layers.3.self_attn.sinks": torch.zeros(4)}, folder / "model.safetensors")
    with refused(gemloupe.BadCheckpoint, r"layers\.3\.self_attn\.sinks"):
        StandardizedTransformer(folder)


# ------------------------------------------------------------------------------------------------ shards, folders, hub


def test_a_missing_shard(sharded):
    shard = sorted(sharded.glob("model-*.safetensors"))[1]
    shard.unlink()
    with refused(gemloupe.Error, shard.name.replace(".", r"\.")):
        StandardizedTransformer(sharded)


def test_an_index_that_names_a_file_outside(sharded):
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    name = next(iter(index["weight_map"]))
    index["weight_map"][name] = "../../etc/passwd"
    path.write_text(json.dumps(index))
    with refused(gemloupe.BadCheckpoint, "index"):
        StandardizedTransformer(sharded)


def test_an_index_that_is_broken(sharded):
    (sharded / "model.safetensors.index.json").write_text("{")
    with refused(gemloupe.BadCheckpoint, "index"):
        StandardizedTransformer(sharded)


def test_an_index_that_names_the_wrong_shard(sharded):
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    right = index["weight_map"]["model.norm.weight"]
    index["weight_map"]["model.norm.weight"] = next(name for name in index["weight_map"].values() if name != right)
    path.write_text(json.dumps(index))
    with refused(gemloupe.BadCheckpoint, r"norm\.weight"):
        StandardizedTransformer(sharded)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file(folder, file):
    (folder / file).unlink()
    with refused(gemloupe.BadCheckpoint, file.replace(".", r"\.")):
        StandardizedTransformer(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": 3}', "nonsense", '{"model_type": "gemma3_text"} {}'])
def test_a_config_that_is_no_config(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises((gemloupe.BadConfig, gemloupe.BadCheckpoint), match=r"config\.json"):
        StandardizedTransformer(folder)


def test_an_unknown_model_type(folder):
    (folder / "config.json").write_text('{"model_type": "llama"}')
    with refused(gemloupe.BadConfig, r"config\.json", "llama", "gemma3_text"):
        StandardizedTransformer(folder)


def test_a_path_that_is_not_there(tmp_path):
    with refused(gemloupe.NotFound, "nowhere"):
        StandardizedTransformer(tmp_path / "nowhere")


def test_a_hub_id_that_is_not_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with refused(gemloupe.NotFound, "google/gemma-3-270m", str(tmp_path / "hub"), "download"):
        StandardizedTransformer("google/gemma-3-270m")


def test_a_revision_that_is_not_in_the_cache(zoo, tmp_path, monkeypatch):
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / "abc123"
    shutil.copytree(zoo.folder("mqa"), snapshot)
    refs = tmp_path / "models--someone--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc123")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    ids = token_ids(9, 400)
    for revision in (None, "main", "abc123"):
        model = StandardizedTransformer("someone/tiny", attn_implementation="eager", revision=revision)
        assert_equal_bits(logits_of(model, ids), zoo.reference("mqa").logits(ids), "logits")
    with refused(gemloupe.NotFound, "v2", "someone/tiny"):
        StandardizedTransformer("someone/tiny", revision="v2")


@pytest.mark.parametrize("kept", [0, 3, 20, 200, 0.3, 0.9, 0.9999])
def test_a_gguf_cut_short(zoo, tmp_path, kept):
    data = checkpoints.gguf_file(zoo.root).read_bytes()
    path = tmp_path / "short.gguf"
    path.write_bytes(data[: kept if isinstance(kept, int) else int(len(data) * kept)])
    with refused(gemloupe.BadCheckpoint, r"short\.gguf"):
        StandardizedTransformer(path)


def test_a_gguf_that_is_none(tmp_path):
    path = tmp_path / "none.gguf"
    path.write_bytes(b"not a GGUF file at all" * 10)
    with refused(gemloupe.BadCheckpoint, r"none\.gguf"):
        StandardizedTransformer(path)


# ------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float33"},
        {"dtype": "int8"},
        {"dtype": torch.int64},
        {"attn_implementation": "flash"},
        {"device": "nowhere"},
        {"task": "image-classification"},
        {"final_logit_softcapping": "much"},
        {"final_logit_softcapping": -1.0},
        {"final_logit_softcapping": float("nan")},
        {"threads": 0},
    ],
    ids=str,
)
def test_an_option_s_value(folder, options):
    ((_, value),) = options.items()
    with refused(gemloupe.BadOption, str(value).removeprefix("torch.")):
        StandardizedTransformer(folder, **options)


def test_options_are_keywords(folder):
    with pytest.raises(TypeError):
        StandardizedTransformer(folder, "float32")


# ------------------------------------------------------------------------------------------------ prompts

IDS = [2, 5, 9]


@pytest.mark.parametrize(
    "prompt, words",
    [
        ([], ["empty"]),
        (torch.empty(1, 0, dtype=torch.long), ["empty"]),
        (torch.empty(0, 5, dtype=torch.long), ["empty"]),
        ([[]], ["empty"]),
        ([2, 400], ["400", "399"]),
        ([2, -1], ["-1", "399"]),
        (torch.tensor([[2.0, 5.0]]), ["input_ids", "integer"]),
        (torch.tensor([[[2, 5]]]), ["input_ids", r"\[1, 1, 2\]"]),
        ({"input_ids": [IDS], "attention_mask": [[1, 1]]}, ["attention_mask", r"\[1, 3\]", r"\[1, 2\]"]),
        ({"input_ids": [IDS], "attention_mask": [[0, 0, 0]]}, ["attention_mask"]),
        ({"input_ids": [IDS], "attention_mask": [[1, 2, 1]]}, ["attention_mask"]),
        ({"input_ids": [IDS], "position_ids": torch.tensor([[0.0, float("nan"), 2.0]])}, ["position_ids", "NaN"]),
        ({"input_ids": [IDS], "position_ids": torch.tensor([[0.0, 0.5, 2.0]])}, ["position_ids"]),
        ({"input_ids": [IDS], "position_ids": torch.tensor([[0, -1, 2]])}, ["position_ids"]),
        ({"input_ids": [IDS], "position_ids": torch.tensor([[0, 1]])}, ["position_ids", r"\[1, 3\]", r"\[1, 2\]"]),
        ({"input_ids": [IDS], "pixel_values": torch.zeros(1)}, ["pixel_values"]),
        ({"attention_mask": [[1]]}, ["input_ids"]),
    ],
    ids=lambda value: "",
)
def test_a_prompt_that_makes_no_sense(model, prompt, words):
    for run in (model.trace, model.generate, model):
        with refused(gemloupe.BadPrompt, *words):
            run(prompt)


def test_a_string_without_a_tokenizer(zoo):
    model = zoo.model("minimal")
    assert logits_of(model, torch.tensor([[2, 5]])).shape == (1, 2, 37)
    with refused(gemloupe.NotFound, "tokenizer"):
        model.trace("text")


def test_a_vocabulary_larger_than_the_embedding(folder):
    """The tokenizer's ids reach 392, this embedding ends at 300."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:300].clone()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    with refused(gemloupe.BadPrompt, "299"):
        StandardizedTransformer(folder).trace("The city")


@pytest.mark.parametrize("count", [-1, 0])
def test_no_new_tokens(model, count):
    if count == 0:
        assert model.generate([IDS], max_new_tokens=0).tolist() == [IDS]
    else:
        with refused(gemloupe.BadOption, "max_new_tokens", "-1"):
            model.generate([IDS], max_new_tokens=count)


# ------------------------------------------------------------------------------------------------ names and order


@pytest.mark.parametrize(
    "name, nearest",
    [
        ("layers.3.mlp.mlp_outputs", "mlp_output"),
        ("layers.3.self_attn.attention_query", "attention_queries"),
        ("layer.3.layer_output", r"layers\.3\.layer_output"),
        ("logit", "logits"),
        ("layers.99.layer_output", "layer_output"),
    ],
)
def test_a_name_that_does_not_exist(model, name, nearest):
    with model.trace(torch.tensor([IDS])) as tracer:
        with refused(gemloupe.UnknownName, name.replace(".", r"\."), nearest):
            tracer.read(name)
        with refused(gemloupe.UnknownName, name.replace(".", r"\.")):
            tracer.write(name, torch.zeros(1))
        assert model.logits.shape == (1, 3, 400)  # a refusal costs nothing


def test_an_attribute_that_does_not_exist(model):
    assert not hasattr(model, "nonsense") and not hasattr(model.layers[0], "nonsense")
    with model.trace(torch.tensor([IDS])):
        with refused(gemloupe.UnknownName, "attention_query", "attention_queries"):
            _ = model.layers[2].self_attn.attention_query
        with refused(gemloupe.UnknownName, "layer_outputs", "layer_output"):
            model.layers[2].layer_outputs = torch.zeros(1)
    with pytest.raises(IndexError):
        _ = model.layers[8]


def test_a_module_without_ports(model):
    with model.trace(torch.tensor([IDS])):
        with pytest.raises(gemloupe.Absent):
            _ = model.layers.output
        with pytest.raises(gemloupe.Absent):
            _ = model.model.rotary_emb.output


def test_a_value_already_passed(model):
    with model.trace(torch.tensor([IDS])):
        _ = model.layers[5].layer_output
        words = [r"layers\.2\.mlp\.mlp_output", r"layers\.5\.layer_output", "line", __file__.rsplit("/", 1)[-1]]
        with refused(gemloupe.OutOfOrder, *words):
            _ = model.layers[2].mlp.mlp_output
        with refused(gemloupe.OutOfOrder, *words):
            model.layers[2].mlp.mlp_output = torch.zeros(1, 3, 48)
        assert model.layers[6].layer_output.shape == (1, 3, 48)


def test_values_handed_over_together_read_in_any_order(model):
    with model.trace(torch.tensor([IDS])):
        attention = model.layers[1].self_attn
        for name in ("attention_values", "attention_queries", "attention_keys"):
            assert getattr(attention, name).shape[-1] == 16
        assert model.layers[2].layer_input.shape == model.layers[1].layer_output.shape


def test_a_value_outside_a_trace(model):
    with refused(gemloupe.OutsideTrace, r"layers\.1\.layer_output", "trace"):
        _ = model.layers[1].layer_output
    with model.trace(torch.tensor([IDS])) as tracer:
        pass
    with pytest.raises(gemloupe.OutsideTrace):
        tracer.read("logits")


# ------------------------------------------------------------------------------------------------ written values


@pytest.mark.parametrize(
    "value, words",
    [
        (torch.zeros(1, 3, 47), ["layer_output", r"hidden_size", "47", "48"]),
        (torch.zeros(48), ["layer_output", "48"]),
        (torch.zeros(2, 3, 48), ["layer_output", "batch"]),
        (torch.zeros(1, 3, 48, dtype=torch.long), ["layer_output", "Long"]),
        (torch.zeros(1, 3, 48, dtype=torch.complex64), ["layer_output", "Complex"]),
        (None, ["layer_output", "None"]),
    ],
    ids=lambda value: "",
)
def test_a_written_tensor_that_does_not_fit(model, value, words):
    clean = logits_of(model, torch.tensor([IDS]))
    with model.trace(torch.tensor([IDS])):
        with refused(gemloupe.BadValue, *words):
            model.layers[1].layer_output = value
        logits = model.logits.save()
    assert_equal_bits(logits, clean, "logits after a refused write")


def test_the_shape_that_a_value_must_have_is_named_axis_by_axis(model):
    """Whatever the assigned tensor's own number of dimensions."""
    compared = 0
    for row in model._row_table:
        if not (row.is_value and row.axes):
            continue
        with model.trace(torch.tensor([IDS])) as tracer, pytest.raises(gemloupe.Error) as caught:
            tracer.write(row.name, torch.zeros(1, 1, 1, 1, 1, 1))
        if not isinstance(caught.value, gemloupe.ReadOnly):
            assert isinstance(caught.value, gemloupe.BadValue)
            expected = ", ".join(rf"{axis} \d+" for axis in row.axes)
            assert re.search(
                rf"must have the shape \[[\d, ]+\] \({expected}\), .* has \[1, 1, 1, 1, 1, 1\]", str(caught.value)
            )
            compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("made", "word"), [(torch.Tensor.to_sparse, "sparse"), (lambda value: value.to("meta"), "meta")]
)
def test_what_holds_no_dense_numbers(model, made, word):
    with model.trace(torch.tensor([IDS])), refused(gemloupe.BadValue, "layer_output", word):
        model.layers[1].layer_output = made(model.layers[1].layer_output)


def test_what_is_no_tensor(model):
    with model.trace(torch.tensor([IDS])), refused(gemloupe.BadValue, "layer_output", "str"):
        model.layers[1].layer_output = "a string"


def test_read_only_values(model):
    with model.trace(torch.tensor([IDS])):
        with refused(gemloupe.ReadOnly, "input_size"):
            model.input_size = torch.tensor([1, 2])
        with refused(gemloupe.ReadOnly, "next_token_probs"):
            model.next_token_probs = torch.zeros(1, 400)


def test_a_snapshot_that_is_written(model):
    with refused(gemloupe.SnapshotWritten, r"layers\.1\.layer_output"), model.trace(torch.tensor([IDS])):
        saved = model.layers[1].layer_output.save()
        saved[:] = 0


def test_an_error_of_the_body_passes_through(model):
    with pytest.raises(ZeroDivisionError), model.trace(torch.tensor([IDS])):
        _ = model.layers[1].layer_output
        _ = 1 / 0
    assert logits_of(model, torch.tensor([IDS])).shape == (1, 3, 400)


def test_every_error_names_its_page():
    """A class for each kind of error, a page for each class."""

    pages = Path(__file__).parents[2] / "docs" / "errors"
    kinds = [kind for kind in vars(gemloupe.errors).values() if isinstance(kind, type)]
    kinds = [kind for kind in kinds if issubclass(kind, gemloupe.Error) and kind is not gemloupe.Error]
    assert len(kinds) >= 16
    assert [kind.slug for kind in kinds if not (pages / f"{kind.slug}.md").exists()] == []
