"""transformers, as a peer that answers requests. It is given what it is fastest with: sdpa, inference mode, no cache where
none is needed, and no generate() around the decoding."""

from __future__ import annotations

from typing import Any

import torch
from serve import Stopwatch, resident, serve

BASELINE = resident()
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self.path = model
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype or "auto").eval()
        return {}

    def _keep(self, rows: str) -> dict[str, int]:
        return {"logits_to_keep": 1} if rows == "last" else {}

    @torch.inference_mode()
    def prefill(self, ids: list[int], rows: str) -> dict[str, Any]:
        prompt = torch.tensor([ids])
        with Stopwatch() as watch:
            logits = self.model(input_ids=prompt, use_cache=False, **self._keep(rows)).logits
        return {"samples": watch.samples, "check": int(logits[0, -1].argmax())}

    @torch.inference_mode()
    def decode(self, ids: list[int], tokens: int) -> dict[str, Any]:
        out = self.model(input_ids=torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        with Stopwatch() as watch:
            for _ in range(tokens - 1):
                token = out.logits[:, -1].argmax(-1, keepdim=True)
                out = self.model(input_ids=token, cache=out.cache, use_cache=True)
                watch.lap()
        return {"samples": watch.samples[:-1], "check": int(out.logits[0, -1].argmax())}

    @torch.inference_mode()
    def forward(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt = torch.tensor([ids])
        with Stopwatch() as watch:
            for _ in range(calls):
                self.model(input_ids=prompt, use_cache=False)
        return {"samples": watch.per(calls)}

    @torch.inference_mode()
    def memory(self, text: str) -> dict[str, Any]:
        prompt = AutoTokenizer.from_pretrained(self.path)(text, return_tensors="pt")["input_ids"]
        logits = self.model(input_ids=prompt, logits_to_keep=1).logits
        return {"bytes": resident() - BASELINE, "check": int(logits[0, -1].argmax())}


serve(Peer())
