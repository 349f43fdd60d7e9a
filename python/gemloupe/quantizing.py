"""A checkpoint as one GGUF file, its matrices quantised."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from . import _core

_log = logging.getLogger("gemloupe")


def quantize(
    path_or_id: str | os.PathLike,
    to: str | os.PathLike,
    type: str = "q8_0",
    *,
    revision: str | None = None,
    ignore_config_keys: Sequence[str] = (),
) -> Path:
    """Writes a checkpoint's text model, vocabulary and chat template to a GGUF file, and returns its path.

    The file appears whole or not at all, and tensors go through memory part by part. What is not in it, or not in the type that
    was asked for, is logged as a warning.

    Args:
        path_or_id: a checkpoint folder, a ``.gguf`` file, or a hub id that is in the local cache.
        to: the file, which ends with ``.gguf``.
        type: of the matrices: ``"q8_0"``, ``"bf16"``, ``"f16"`` or ``"f32"``. Vectors are float32.
        revision: branch, tag or commit of a hub id.
        ignore_config_keys: as for `StandardizedTransformer`.

    Raises:
        NotFound, BadCheckpoint; BadConfig, BadTokenizer for what a GGUF file cannot say; BadOption, CannotWrite.
    """
    path = Path(to)
    for note in _core.quantize(os.fspath(path_or_id), os.fspath(path), type, revision, list(ignore_config_keys)):
        _log.warning("%s: %s", path, note)
    return path
