"""Writes the numpy_*.npy and numpy_*.npz files of this folder, with numpy: what the readers are tested with.

The C++ tests wrote written.* (set GEMLOUPE_GOLDEN to a folder); python/tests/test_store_files.py reads them back.
"""

from pathlib import Path

import numpy as np

folder = Path(__file__).parent
arrays = {
    "f16": np.array([1.5, -2, np.inf], dtype=np.float16),
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "f64": np.array(0.1),
    "i64": np.array([-1, 2**40]),
    "i32": np.array([[-(2**31)], [7]], dtype=np.int32),
    "i16": np.array([-300], dtype=np.int16),
    "i8": np.array([-128, 127], dtype=np.int8),
    "u8": np.array([0, 255], dtype=np.uint8),
    "bool": np.array([True, False, True]),
    "empty": np.zeros((0, 3), dtype=np.float32),
    "fortran": np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4)),
}
np.savez(folder / "numpy_stored.npz", **arrays)
np.savez_compressed(folder / "numpy_deflated.npz", **arrays)
np.save(folder / "numpy_fortran.npy", arrays["fortran"])
np.save(folder / "numpy_big_endian.npy", np.arange(3, dtype=">f4"))
np.save(folder / "numpy_text.npy", np.array(["a"]))
np.save(folder / "numpy_fields.npy", np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")]))
