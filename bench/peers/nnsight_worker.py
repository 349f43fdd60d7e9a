"""nnsight, as a peer that answers requests: only what a trace costs."""

from __future__ import annotations

from typing import Any

import torch
from nnsight import NNsight
from serve import Stopwatch, serve
from transformers import AutoModelForCausalLM


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self.bare = AutoModelForCausalLM.from_pretrained(model, dtype=dtype or "auto").eval()
        self.model = NNsight(self.bare)
        return {}

    @torch.no_grad()
    def forward(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.bare
        with Stopwatch() as watch:
            for _ in range(calls):
                model(input_ids=prompt, use_cache=False)
        return {"samples": watch.per(calls)}

    @torch.no_grad()
    def trace_one(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(input_ids=prompt, use_cache=False):
                    value = model.model.layers[0].output.save()  # noqa: F841
                    logits = model.lm_head.output.save()  # noqa: F841
        return {"samples": watch.per(calls)}

    @torch.no_grad()
    def trace_layers(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        count = len(self.bare.model.layers)
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(input_ids=prompt, use_cache=False):
                    saved = [model.model.layers[i].output.save() for i in range(count)]  # noqa: F841
                    logits = model.lm_head.output.save()  # noqa: F841
        return {"samples": watch.per(calls)}


serve(Peer())
