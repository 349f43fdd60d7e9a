"""A GGUF of Gemma 1, 2 or 4, written with the names and metadata of llama.cpp's converter, is the same model as the folder."""

import pytest
import torch

from gemloupe import StandardizedTransformer
from gemloupe.errors import BadCheckpoint
from reference import gguf_files


@pytest.mark.parametrize(
    "name", ["gemma", "gemma_mqa", "gemma2_gguf", "gemma4_e2b", "gemma4_31b", "gemma4_moe", "gemma4_unified"]
)
def test_the_same_model(zoo, tmp_path, name):
    reference = zoo.reference(name)
    gguf_files.write(tmp_path / "m.gguf", reference.model)
    model = StandardizedTransformer(tmp_path / "m.gguf", attn_implementation="eager")
    folder = zoo.model(name)
    if name not in ("gemma", "gemma_mqa"):  # which has one kind of block
        assert model.config.layer_types == folder.config.layer_types
    ids = torch.tensor([[2, 17, 300, 21, 5, 88, 123, 7, 9, 41]])
    # Not the same bits: a product of one row depends on how its weight is aligned, and the formats align differently.
    torch.testing.assert_close(model(ids), folder(ids), atol=1e-5, rtol=1e-5)
    assert [layer.mlp.intermediate_size for layer in model.layers] == [
        layer.mlp.intermediate_size for layer in folder.layers
    ]


def test_a_gguf_whose_weights_are_another_s(zoo, tmp_path):
    model = zoo.reference("gemma4_31b").model
    gguf_files.write(tmp_path / "m.gguf", model)
    data = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(
        data.replace(b"gemma4.attention.shared_kv_layers", b"gemma4.attention.shared_kv_layerz")
    )
    assert StandardizedTransformer(tmp_path / "cut.gguf").num_layers == 7  # a count of 0 is the default
    wrong = data.replace(b"gemma4.attention.key_length_swa", b"gemma4.attention.key_length_swb")
    (tmp_path / "wrong.gguf").write_bytes(wrong)
    with pytest.raises(BadCheckpoint, match=r"wrong\.gguf: tensor 'blk\.0\.attn_q\.weight' has shape"):
        StandardizedTransformer(tmp_path / "wrong.gguf")
