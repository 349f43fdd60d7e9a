"""transformers, as a peer that answers requests. It is given what it is fastest with: sdpa, inference mode, no cache where
none is needed, and no generate() around the decoding."""

from __future__ import annotations

from typing import Any

import torch
from serve import Stopwatch, reset_peak, resident, serve

BASELINE = resident()
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402


def said(logits: torch.Tensor) -> dict[str, Any]:
    """What a check needs of the last row of logits."""
    return {"some": logits[0, -1, :64].tolist(), "tokens": [int(logits[0, -1].argmax())]}


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self.path = model
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype or "auto").eval()
        self.running: Any = None
        return {}

    def _keep(self, rows: str) -> dict[str, int]:
        return {"logits_to_keep": 1} if rows == "last" else {}

    @torch.inference_mode()
    def prefill(self, ids: list[int], rows: str) -> dict[str, Any]:
        prompt = torch.tensor([ids])
        with Stopwatch() as watch:
            logits = self.model(input_ids=prompt, use_cache=False, **self._keep(rows)).logits
        return {"samples": watch.samples, "check": said(logits)}

    def _read(self, ids: list[int]) -> Any:
        return self.model(input_ids=torch.tensor([ids]), use_cache=True, logits_to_keep=1)

    def _next(self, out: Any) -> Any:
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        return self.model(input_ids=token, cache=out.cache, use_cache=True)

    @torch.inference_mode()
    def decode(self, ids: list[int], tokens: int) -> dict[str, Any]:
        out = self._read(ids)
        check, rows = said(out.logits), [out.logits]
        with Stopwatch() as watch:
            for _ in range(tokens - 1):
                out = self._next(out)
                watch.lap()
                rows.append(out.logits)
        made = [int(row[0, -1].argmax()) for row in rows]
        return {"samples": watch.samples[:-1], "check": check | {"tokens": made}}

    @torch.inference_mode()
    def decode_on(self, ids: list[int], tokens: int) -> dict[str, Any]:
        """The prompt is read by the first call; each makes so many tokens more."""
        if self.running is None:
            self.running = self._read(ids)
            self.first = said(self.running.logits)
        with Stopwatch() as watch:
            for _ in range(tokens):
                self.running = self._next(self.running)
                watch.lap()
        return {"samples": watch.samples[1:-1], "check": self.first}

    @torch.inference_mode()
    def forward(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt = torch.tensor([ids])
        with Stopwatch() as watch:
            for _ in range(calls):
                self.model(input_ids=prompt, use_cache=False)
        return {"samples": watch.per(calls)}

    @torch.inference_mode()
    def grow(self, ids: list[int], batch: int, saved: int, turns: int) -> dict[str, Any]:
        """A forward of a batch: what its peak is beyond a small forward, and its time. Nothing is saved."""
        prompt = torch.tensor([ids] * batch)
        self.model(input_ids=prompt[:1, :16], use_cache=False, logits_to_keep=1)
        reset_peak()
        before = resident()
        self.model(input_ids=prompt, use_cache=False, logits_to_keep=1)
        size = resident("VmHWM") - before
        with Stopwatch() as watch:
            for _ in range(turns):
                self.model(input_ids=prompt, use_cache=False, logits_to_keep=1)
                watch.lap()
        return {"bytes": size, "samples": watch.samples[:-1]}

    @torch.inference_mode()
    def memory(self, text: str) -> dict[str, Any]:
        prompt = AutoTokenizer.from_pretrained(self.path)(text, return_tensors="pt")["input_ids"]
        logits = self.model(input_ids=prompt, logits_to_keep=1).logits
        return {"bytes": resident() - BASELINE, "check": said(logits)}

    @torch.inference_mode()
    def peak(self, ids: list[int]) -> dict[str, Any]:
        """The most beyond `import torch` that this process ever had, after a prefill."""
        logits = self.model(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits
        return {"bytes": resident("VmHWM") - BASELINE, "check": said(logits)}

    @torch.inference_mode()
    def peak_beyond(self, ids: list[int]) -> dict[str, Any]:
        """The same beyond what the load and a first forward of a short prompt left."""
        self.model(input_ids=torch.tensor([ids[:16]]), use_cache=False, logits_to_keep=1)
        reset_peak()
        before = resident()
        logits = self.model(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits
        return {"bytes": resident("VmHWM") - before, "check": said(logits)}

    @torch.inference_mode()
    def steer(self, ids: list[int], layer: int, count: int, tokens: int) -> dict[str, Any]:
        """A vector at a time, added to a block's output by a hook."""
        width = self.model.config.hidden_size
        vectors = torch.randn(count, width, generator=torch.Generator().manual_seed(1)).to(self.model.dtype)
        prompt, block, rows = torch.tensor([ids]), self.model.model.layers[layer], []
        with Stopwatch() as watch:
            for vector in vectors:
                hook = block.register_forward_hook(lambda _, __, out, vector=vector: out + vector)
                rows.append(self.model(input_ids=prompt, use_cache=False, logits_to_keep=1).logits[0, -1])
                hook.remove()
        return {"samples": watch.samples, "check": torch.stack(rows)[:, :tokens].flatten().tolist()}

    @torch.inference_mode()
    def harvest(self, prompts: list[list[int]]) -> dict[str, Any]:
        """A prompt at a time through the model without its head, with a hook on each block."""
        states: list[torch.Tensor] = []
        hooks = [
            block.register_forward_hook(lambda _, __, out: states.append(out[0, -1].clone()))
            for block in self.model.model.layers
        ]
        with Stopwatch() as watch:
            for prompt in prompts:
                self.model.model(input_ids=torch.tensor([prompt]), use_cache=False)
        for hook in hooks:
            hook.remove()
        last = torch.stack(states[len(hooks) - 1 :: len(hooks)])
        return {"samples": watch.samples, "check": last[:, :4].flatten().tolist()}


serve(Peer())
