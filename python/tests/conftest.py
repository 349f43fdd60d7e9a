"""Fixtures: the tiny checkpoints, transformers and gemloupe loaded on them, and inputs."""

import functools
import logging
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import transformers  # noqa: E402

from reference import checkpoints  # noqa: E402
from reference.capture import Reference  # noqa: E402

torch.set_num_threads(1)  # tensors this small lose by being shared out; the same for both sides, as bits require
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore", module="transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)


def token_ids(length: int, vocabulary: int, seed: int = 1, rows: int = 1) -> torch.Tensor:
    """Rows of ids: BOS, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    rest = torch.randint(3, vocabulary, (rows, length - 1), generator=generator)
    return torch.cat([torch.full((rows, 1), 2), rest], 1)


@dataclass(frozen=True)
class Zoo:
    """Every tiny checkpoint, and what is loaded of them, once for a session."""

    root: Path

    def folder(self, name: str, dtype: str = "float32", variant: str = "single") -> Path:
        return checkpoints.folder(self.root, name, dtype, variant)

    @functools.cache  # noqa: B019
    def reference(self, name: str, dtype: str = "float32", implementation: str | None = "eager") -> Reference:
        return Reference(self.folder(name, dtype), implementation)

    @functools.cache  # noqa: B019
    def model(self, name: str, dtype: str = "float32", implementation: str | None = "eager"):
        from gemloupe import StandardizedTransformer

        return StandardizedTransformer(self.folder(name, dtype), attn_implementation=implementation)

    @functools.cache  # noqa: B019
    def exact(self, name: str, dtype: str = "float32"):
        """The same weights and operations in float64: what rounding alone is measured from."""
        from gemloupe import StandardizedTransformer

        return StandardizedTransformer(self.folder(name, dtype), attn_implementation="eager", dtype="float64")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in one dtype."""

    zoo: Zoo
    name: str
    dtype: str

    @property
    def folder(self) -> Path:
        return self.zoo.folder(self.name, self.dtype)

    @property
    def vocabulary(self) -> int:
        return checkpoints.RECIPES[self.name].config["vocab_size"]

    def reference(self, implementation: str | None = "eager") -> Reference:
        return self.zoo.reference(self.name, self.dtype, implementation)

    def model(self, implementation: str | None = "eager"):
        return self.zoo.model(self.name, self.dtype, implementation)

    def exact(self):
        return self.zoo.exact(self.name, self.dtype)

    def ids(self, length: int = 20, seed: int = 1) -> torch.Tensor:
        return token_ids(length, self.vocabulary, seed)

    def padded(self, lengths=(17, 9, 1)) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of unlike lengths, padded on the left: ids and mask."""
        width = max(lengths)
        ids = torch.zeros(len(lengths), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, length in enumerate(lengths):
            ids[row, width - length :] = self.ids(length, seed=row + 10)
            mask[row, width - length :] = 1
        return ids, mask


@pytest.fixture(scope="session")
def zoo(pytestconfig, tmp_path_factory) -> Zoo:
    cache = getattr(pytestconfig, "cache", None)
    return Zoo(checkpoints.build_all(cache.mkdir("checkpoints") if cache else tmp_path_factory.mktemp("checkpoints")))


@pytest.fixture
def model(checkpoint):
    """The test's checkpoint in gemloupe, with eager attention."""
    return checkpoint.model()


@pytest.fixture
def reference(checkpoint) -> Reference:
    return checkpoint.reference()


EACH = [(name, dtype) for name in checkpoints.NAMES for dtype in ("float32", "bfloat16")]


@pytest.fixture(scope="session", params=EACH, ids="-".join)
def checkpoint(request, zoo) -> Checkpoint:
    return Checkpoint(zoo, *request.param)


@pytest.fixture(scope="session", params=checkpoints.NAMES)
def checkpoint32(request, zoo) -> Checkpoint:
    return Checkpoint(zoo, request.param, "float32")


@pytest.fixture(scope="session", params=[*checkpoints.NAMES, *checkpoints.OTHER_FAMILIES])
def every32(request, zoo) -> Checkpoint:
    """A checkpoint of any text family."""
    return Checkpoint(zoo, request.param, "float32")
