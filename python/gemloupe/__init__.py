"""gemloupe: a jeweller's loupe for Gemma.

Load any Gemma checkpoint, run it, and read and change every named value inside the forward pass::

    from gemloupe import StandardizedTransformer

    model = StandardizedTransformer("google/gemma-3-270m")
    with model.trace("The Eiffel Tower is in the city of"):
        resid = model.layers[12].layer_output[:, -1].save()
    print(model.project_on_vocab(resid))
"""

from __future__ import annotations

import importlib.metadata as _metadata
import logging as _logging
import os as _os

import torch as _torch


def _check_torch(built_with: str) -> None:
    found = _torch.__version__.split("+")[0]
    if found != built_with:
        raise ImportError(
            f"gemloupe was built with torch {built_with} and runs with no other version, but torch {found} is installed. "
            f"Run: pip install torch=={built_with}"
        )


def _wanted_torch() -> str | None:
    """The version that the package asks for, known before the extension is loaded: another libtorch cannot load it."""
    try:
        requirements = _metadata.requires("gemloupe") or []
    except _metadata.PackageNotFoundError:
        return None
    return next((r.split("==")[1].strip() for r in requirements if r.startswith("torch==")), None)


if _wanted := _wanted_torch():
    _check_torch(_wanted)

from . import _core  # noqa: E402

_check_torch(_core.torch_version)

from . import errors  # noqa: E402
from .errors import (  # noqa: E402
    Absent,
    BadCheckpoint,
    BadConfig,
    BadOption,
    BadPrompt,
    BadTokenizer,
    BadValue,
    CannotCall,
    CannotSkip,
    CannotWrite,
    Error,
    InternalError,
    NotFound,
    NotInThisRun,
    OutOfOrder,
    OutsideTrace,
    ReadOnly,
    SnapshotWritten,
    UnknownName,
)
from .model import StandardizedTransformer, released  # noqa: E402
from .quantizing import quantize  # noqa: E402
from .saving import save  # noqa: E402

__version__: str = _core.version

_logger = _logging.getLogger("gemloupe")
_logger.addHandler(_logging.NullHandler())
if _level := _os.environ.get("GEMLOUPE_LOG"):
    _logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
    _logger.setLevel(_level.upper())

__all__ = [
    "Absent",
    "BadCheckpoint",
    "BadConfig",
    "BadOption",
    "BadPrompt",
    "BadTokenizer",
    "BadValue",
    "CannotCall",
    "CannotSkip",
    "CannotWrite",
    "Error",
    "InternalError",
    "NotFound",
    "NotInThisRun",
    "OutOfOrder",
    "OutsideTrace",
    "ReadOnly",
    "SnapshotWritten",
    "StandardizedTransformer",
    "UnknownName",
    "__version__",
    "errors",
    "quantize",
    "released",
    "save",
]
