"""gemloupe from Python, as a peer that answers requests."""

from __future__ import annotations

from typing import Any

import torch
from serve import Stopwatch, resident, serve

BASELINE = resident()
import gemloupe  # noqa: E402


def top(logits: torch.Tensor) -> int:
    """The token after the prompt."""
    return int(logits.reshape(-1, logits.shape[-1])[-1].argmax())


def some(logits: torch.Tensor) -> list[float]:
    """Of what is said after the prompt as much as a check needs."""
    return logits[0, -1, :64].tolist()


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        self.model = gemloupe.StandardizedTransformer(model, dtype=dtype, threads=threads)
        return {}

    def _logits(self, ids: torch.Tensor, rows: str) -> torch.Tensor:
        if rows == "all":
            return self.model(ids)
        with self.model.trace(ids):
            logits = self.model.logits[:, -1].save()
        return logits

    def prefill(self, ids: list[int], rows: str) -> dict[str, Any]:
        prompt = torch.tensor([ids])
        with Stopwatch() as watch:
            logits = self._logits(prompt, rows)
        return {"samples": watch.samples, "check": top(logits)}

    def decode(self, ids: list[int], tokens: int) -> dict[str, Any]:
        with Stopwatch() as watch:
            made = self.model.generate([ids], max_new_tokens=tokens, eos_token_id=-1, streamer=lambda _: watch.lap())
        # The first lap is the prompt's pass, the last one what comes after the last token.
        return {"samples": watch.samples[1:-1], "check": int(made[0, -1])}

    def forward(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                logits = model(prompt)
        return {"samples": watch.per(calls), "check": some(logits)}

    def trace_one(self, ids: list[int], calls: int) -> dict[str, Any]:
        """One value saved, in a run that goes on to all logits as the bare forward does."""
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(prompt):
                    model.layers[0].layer_output.save()
                    logits = model.logits.save()
        return {"samples": watch.per(calls), "check": some(logits)}

    def trace_layers(self, ids: list[int], calls: int) -> dict[str, Any]:
        """The outputs of all blocks saved, likewise."""
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(prompt):
                    saved = [layer.layer_output.save() for layer in model.layers]
                    saved.append(model.logits.save())
        return {"samples": watch.per(calls), "check": some(saved[-1])}

    def trace_patterns(self, ids: list[int], calls: int) -> dict[str, Any]:
        """The attention patterns of all blocks saved, likewise."""
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(prompt):
                    saved = [layer.self_attn.attention_probabilities.save() for layer in model.layers]
                    saved.append(model.logits.save())
        return {"samples": watch.per(calls), "check": some(saved[-1])}

    def trace_edit(self, ids: list[int], calls: int) -> dict[str, Any]:
        """The stream in the middle doubled, and all logits."""
        prompt, model = torch.tensor([ids]), self.model
        middle = model.num_layers // 2
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(prompt):
                    model.layers[middle].layer_output *= 2
                    logits = model.logits.save()
        return {"samples": watch.per(calls), "check": some(logits)}

    def sweep(
        self, clean: list[int], corrupted: list[int], tokens: list[int], cells: list[tuple[int, int]]
    ) -> dict[str, Any]:
        """The residual stream patched at each position of each block. The check is the metric of both runs and at `cells`."""
        from gemloupe.interventions import activation_patching  # not above: what it takes is no part of `memory`

        right, wrong = tokens

        def margin(logits: torch.Tensor) -> torch.Tensor:
            return (logits[:, right] - logits[:, wrong]).mean()

        with Stopwatch() as watch:
            found = activation_patching(self.model, [clean], [corrupted], margin, progress=False)
        patched = [float(found.patched[layer, position]) for layer, position in cells]
        return {"samples": watch.samples, "check": [found.corrupted, found.clean, *patched]}

    def memory(self, text: str) -> dict[str, Any]:
        """Beyond `import torch`, after the load and a first forward of a text."""
        with self.model.trace(text):
            best = self.model.logits[:, -1].argmax(-1).save()
        return {"bytes": resident() - BASELINE, "check": int(best[0])}


serve(Peer())
