"""The machine's own limits, as far as torch reaches them: how fast memory is read, and how fast matrices are multiplied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from serve import Stopwatch, serve

READ = 1 << 30  # bytes, many times what the caches hold
SIZE = 2048  # of the square matrices
TURNS = 5


def _onednn(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """oneDNN's float32 product with packed weights: beside MKL, which is slow on other makers' processors."""
    packed = torch.ops.mkldnn._reorder_linear_weight(b, SIZE)
    return lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        torch.set_num_threads(threads)
        return {}

    @staticmethod
    def _samples(actions: list[Callable[[], Any]], amount: int) -> dict[str, Any]:
        """Of actions that do so much each, the seconds of a unit."""
        samples = []
        for action in actions:
            action()
            for _ in range(TURNS):
                with Stopwatch() as watch:
                    action()
                samples += watch.per(amount)
        return {"samples": samples}

    def read(self) -> dict[str, Any]:
        """Sums over a gibibyte."""
        floats = torch.ones(READ // 4)
        return self._samples([floats.sum, floats.view(torch.int64).sum], READ)

    def multiply(self, kind: str) -> dict[str, Any]:
        a, b = (torch.randn(SIZE, SIZE).to(getattr(torch, kind)) for _ in range(2))
        actions = [lambda: torch.nn.functional.linear(a, b)]
        if kind == "float32":
            actions.append(_onednn(a, b))
        return self._samples(actions, 2 * SIZE**3)


serve(Peer())
