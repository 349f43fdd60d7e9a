"""nnsight, as a peer that answers requests: what a trace costs, and a sweep of them."""

from __future__ import annotations

from typing import Any

import torch
from nnsight import NNsight, TransformersModel
from serve import Stopwatch, serve
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast


def some(logits: torch.Tensor) -> list[float]:
    """Of what is said after the prompt as much as a check needs."""
    return logits[0, -1, :64].tolist()


class Peer:
    """Single traces go through `NNsight`, the thinner of its wrappers; several invokes in a trace need `TransformersModel`."""

    ATTENTION = "sdpa"

    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self.bare = AutoModelForCausalLM.from_pretrained(
            model, dtype=dtype or "auto", attn_implementation=self.ATTENTION
        ).eval()
        self.model = NNsight(self.bare)
        return {}

    @torch.no_grad()
    def forward(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.bare
        with Stopwatch() as watch:
            for _ in range(calls):
                logits = model(input_ids=prompt, use_cache=False).logits
        return {"samples": watch.per(calls), "check": some(logits)}

    @torch.no_grad()
    def trace_one(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(input_ids=prompt, use_cache=False):
                    value = model.model.layers[0].output.save()  # noqa: F841
                    logits = model.lm_head.output.save()
        return {"samples": watch.per(calls), "check": some(logits)}

    @torch.no_grad()
    def trace_layers(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(input_ids=prompt, use_cache=False):
                    saved = [layer.output for layer in model.model.layers].save()  # noqa: F841
                    logits = model.lm_head.output.save()
        return {"samples": watch.per(calls), "check": some(logits)}

    @torch.no_grad()
    def trace_patterns(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(input_ids=prompt, use_cache=False):
                    saved = [layer.self_attn.output[1] for layer in model.model.layers].save()
                    logits = model.lm_head.output.save()
        assert all(pattern is not None for pattern in saved)
        return {"samples": watch.per(calls), "check": some(logits)}

    @torch.no_grad()
    def trace_edit(self, ids: list[int], calls: int) -> dict[str, Any]:
        prompt, model = torch.tensor([ids]), self.model
        middle = len(self.bare.model.layers) // 2
        with Stopwatch() as watch:
            for _ in range(calls):
                with model.trace(input_ids=prompt, use_cache=False):
                    model.model.layers[middle].output *= 2
                    logits = model.lm_head.output.save()
        return {"samples": watch.per(calls), "check": some(logits)}

    # -------------------------------------------------------------------------------------------------------- sweeps

    def _before(
        self, clean: torch.Tensor, corrupted: torch.Tensor, tokens: list[int]
    ) -> tuple[list[torch.Tensor], list[float]]:
        """What comes before the patches: every block's output of the clean run, and the metric of both runs."""
        model, metrics = self.model, []
        for prompt in (corrupted, clean):
            with model.trace(input_ids=prompt, use_cache=False, logits_to_keep=1):
                streams = [layer.output for layer in model.model.layers].save()
                said = model.lm_head.output[0, -1, tokens].float()
                metric = (said[0] - said[1]).item().save()
            metrics.append(metric)
        return streams, metrics

    @torch.no_grad()
    def sweep_single(
        self, clean: list[int], corrupted: list[int], tokens: list[int], cells: list[tuple[int, int]]
    ) -> dict[str, Any]:
        """A trace for each of `cells`; the time is that of as many traces as there are positions of all blocks."""
        source, prompt, model = torch.tensor([clean]), torch.tensor([corrupted]), self.model
        with Stopwatch() as watch:
            streams, metrics = self._before(source, prompt, tokens)
            watch.lap()
            for layer, position in cells:
                with model.trace(input_ids=prompt, use_cache=False, logits_to_keep=1):
                    model.model.layers[layer].output[:, position] = streams[layer][:, position]
                    said = model.lm_head.output[0, -1, tokens].float()
                    margin = (said[0] - said[1]).item().save()
                metrics.append(margin)
        scale = len(streams) * len(corrupted) / len(cells)
        before, runs = watch.samples
        return {"samples": [{name: before[name] + runs[name] * scale for name in runs}], "check": metrics}

    @torch.no_grad()
    def sweep_invokes(
        self, clean: list[int], corrupted: list[int], tokens: list[int], cells: list[tuple[int, int]]
    ) -> dict[str, Any]:
        """A trace for each block, with an invoke for each position: one forward of all of them."""
        source, prompt, model = torch.tensor([clean]), torch.tensor([corrupted]), self._batching()
        grid = []
        with Stopwatch() as watch:
            streams, metrics = self._before(source, prompt, tokens)
            for layer, stream in enumerate(streams):
                with model.trace(use_cache=False, logits_to_keep=1) as tracer:
                    row = list().save()
                    for position in range(len(corrupted)):
                        with tracer.invoke(prompt):
                            model.model.layers[layer].output[:, position] = stream[:, position]
                            said = model.lm_head.output[0, -1, tokens].float()
                            row.append((said[0] - said[1]).item())
                grid.append(row)
        return {"samples": watch.samples, "check": metrics + [grid[layer][position] for layer, position in cells]}

    def _batching(self) -> TransformersModel:
        """The same model in the wrapper that batches. It wants a tokenizer; prompts are ids, so a pad token is enough of one."""
        if not hasattr(self, "batching"):
            words = Tokenizer(WordLevel({"<pad>": 0}, unk_token="<pad>"))
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
            self.batching = TransformersModel(self.bare, task="text-generation", tokenizer=tokenizer)
        return self.batching


if __name__ == "__main__":
    serve(Peer())
