"""What the C++ tests of store/ compare with byte for byte is what Python's packages make and read.

tests/data/gguf holds blocks and the installed gguf package's floats; the C++ writers wrote tests/store/data/written.*.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/store/data"
FLOATS = np.array([[1.5, -2, 0], [3.25, 1e-30, -0.0]], dtype=np.float32)


def make_gguf_vectors():
    spec = importlib.util.spec_from_file_location("make_gguf_vectors", ROOT / "tools/make_gguf_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["vectors", "metadata", "quantized"])
def test_the_vectors_are_the_installed_gguf_packages(tmp_path, name):
    pytest.importorskip("gguf")
    path = tmp_path / f"{name}.gguf"
    getattr(make_gguf_vectors(), f"write_{name}")(path)
    assert path.read_bytes() == (ROOT / "tests/data/gguf" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["written.npz", "written_64.npz"])
def test_npz_loads_with_numpy(name):
    with np.load(DATA / name) as file:
        assert set(file.files) == {"layers.0.output", "ids", "scalar ß", "empty", "__metadata__"}
        assert file["layers.0.output"].tobytes() == FLOATS.tobytes()
        assert file["layers.0.output"].shape == (2, 3)
        assert file["ids"].tolist() == [1, -2]
        assert file["ids"].dtype == np.int64
        assert file["scalar ß"].shape == ()
        assert file["empty"].shape == (0, 4)
        assert json.loads(bytes(file["__metadata__"])) == {"digest": "abc"}


def test_npy_loads_with_numpy():
    array = np.load(DATA / "written.npy")
    assert array.tobytes() == FLOATS.tobytes()
    assert array.shape == (2, 3)


def test_safetensors_loads_with_the_reference():
    safetensors = pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    with safetensors.safe_open(DATA / "written.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
    assert set(tensors) == {"z.flags", "floats", "bfloats", "ids", "scalar", "empty"}
    assert tensors["floats"].numpy().tobytes() == FLOATS.tobytes()
    assert tensors["bfloats"].dtype == torch.bfloat16
    assert tensors["bfloats"].flatten()[:2].tolist() == [1, -2]
    assert tensors["ids"].tolist() == [1, -2]
    assert tensors["z.flags"].tolist() == [True, False, True]
    assert tensors["scalar"].shape == ()
    assert tensors["empty"].shape == (0, 4)
