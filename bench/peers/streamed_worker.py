"""gemloupe with less memory than the weights take: it reads ahead block by block, and gives back what is behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from serve import Stopwatch, resident, serve

BASELINE = resident()
import gemloupe  # noqa: E402

SHARE = 3  # the weights are so many times what may be filled


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        weights = sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))
        os.environ["GEMLOUPE_MEMORY"] = str(weights // SHARE)
        self.model = gemloupe.StandardizedTransformer(model, dtype=dtype, threads=threads)
        return {}

    def pass_over_weights(self, ids: list[int]) -> dict[str, Any]:
        prompt = torch.tensor([ids])
        self.model(prompt)  # what the page cache held before is given back
        with Stopwatch() as watch:
            self.model(prompt)
        return {"samples": watch.samples}

    def memory(self, text: str) -> dict[str, Any]:
        for _ in range(2):
            with self.model.trace(text):
                top = self.model.logits[:, -1].argmax(-1).save()
        return {"bytes": resident() - BASELINE, "check": {"tokens": [int(top[0])]}}


serve(Peer())
