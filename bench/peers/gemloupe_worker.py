"""gemloupe from Python, as a peer that answers requests."""

from __future__ import annotations

import queue
import threading
from typing import Any

import torch
from serve import Stopwatch, reset_peak, resident, serve

BASELINE = resident()
import gemloupe  # noqa: E402

#: What `grow` saves of each block, in the order of the run.
SAVED = ("layers_input", "attentions_input", "attentions_output", "mlps_input", "mlps_output", "layers_output")


def some(logits: torch.Tensor) -> list[float]:
    """Of what is said after the prompt as much as a check needs."""
    return logits[0, -1, :64].tolist()


def said(logits: torch.Tensor) -> dict[str, Any]:
    """What a check needs of the last row of logits, [batch, (seq,) vocab_size]."""
    row = logits.reshape(-1, logits.shape[-1])[-1]
    return {"some": row[:64].tolist(), "tokens": [int(row.argmax())]}


class Running:
    """A generation that stands still between turns: its thread waits in the streamer until the next one wants tokens."""

    def __init__(self, model: gemloupe.StandardizedTransformer, ids: list[int]) -> None:
        self._model, self._ids, self.made = model, ids, []
        self._wanted: queue.Queue[int] = queue.Queue()
        self._taken: queue.Queue[list[dict[str, float]] | Exception] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._begin()
        try:
            self._model.generate([self._ids], max_new_tokens=512, eos_token_id=-1, streamer=self._step)
            raise RuntimeError("the generation is over")
        except Exception as error:
            self._taken.put(error)

    def _begin(self) -> None:
        self._count = self._wanted.get()
        self._watch = Stopwatch().__enter__()

    def _step(self, tokens: list[int]) -> None:
        self._watch.lap()
        self.made.append(tokens[0])
        if len(self._watch.samples) == self._count:
            self._taken.put(self._watch.samples)
            self._begin()

    def more(self, count: int) -> list[dict[str, float]]:
        """The times of so many tokens, the first of which is behind a prompt or a pause."""
        self._wanted.put(count)
        taken = self._taken.get()
        if isinstance(taken, Exception):
            raise taken
        return taken


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        self.model = gemloupe.StandardizedTransformer(model, dtype=dtype, threads=threads)
        self.running: Running | None = None
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
        return {"samples": watch.samples, "check": said(logits)}

    def decode(self, ids: list[int], tokens: int) -> dict[str, Any]:
        with Stopwatch() as watch:
            made = self.model.generate([ids], max_new_tokens=tokens, eos_token_id=-1, streamer=lambda _: watch.lap())
        some = said(self._logits(torch.tensor([ids]), "last"))["some"]
        # The first lap is the prompt's pass, the last one what comes after the last token.
        return {"samples": watch.samples[1:-1], "check": {"some": some, "tokens": made[0, len(ids) :].tolist()}}

    def decode_on(self, ids: list[int], tokens: int) -> dict[str, Any]:
        """The prompt is read by the first call; each makes so many tokens more."""
        if self.running is None:
            self.running = Running(self.model, ids)
        return {"samples": self.running.more(tokens)[1:], "check": {"tokens": self.running.made[:1]}}

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

    def steer(self, ids: list[int], layer: int, count: int, tokens: int) -> dict[str, Any]:
        """So many vectors added to a block's output, as rows of one batch that goes on from there."""
        width, dtype = self.model.hidden_size, next(self.model.parameters()).dtype
        vectors = torch.randn(count, width, generator=torch.Generator().manual_seed(1)).to(dtype)
        name = f"layers.{layer}.layer_output"
        with Stopwatch() as watch:
            with self.model.trace([ids]) as tracer:
                point = tracer.point(name)
            with self.model.trace(start_from=point.repeat(count)):
                self.model.layers[layer].layer_output += vectors[:, None]
                logits = self.model.logits[:, -1].save()
        return {"samples": watch.samples, "check": logits[:, :tokens].flatten().tolist()}

    def harvest(self, prompts: list[list[int]]) -> dict[str, Any]:
        """What leaves each block at the last token of each prompt."""
        from gemloupe.interventions import collect_token_activations_batched

        with Stopwatch() as watch:
            states = collect_token_activations_batched(self.model, prompts, batch_size=16)
        return {"samples": watch.samples, "check": states[-1, :, :4].flatten().tolist()}

    def grow(self, ids: list[int], batch: int, saved: int, turns: int) -> dict[str, Any]:
        """A forward of a batch that saves the first so many values: what its peak is beyond a small forward, and its time."""
        prompt, model = torch.tensor([ids] * batch), self.model
        values = [(row, name) for row in range(model.num_layers) for name in SAVED][:saved]

        def run() -> torch.Tensor:
            with model.trace(prompt):
                kept = [getattr(model, name)[layer].save() for layer, name in values]  # noqa: F841
                logits = model.logits[:, -1].save()
            return logits

        self._logits(torch.tensor([ids[:16]]), "last")
        reset_peak()
        before = resident()
        run()
        size = resident("VmHWM") - before
        with Stopwatch() as watch:
            for _ in range(turns):
                run()
                watch.lap()
        return {"bytes": size, "samples": watch.samples[:-1]}

    def memory(self, text: str) -> dict[str, Any]:
        """Beyond `import torch`, after the load and a first forward of a text."""
        with self.model.trace(text):
            logits = self.model.logits[:, -1].save()
        return {"bytes": resident() - BASELINE, "check": said(logits)}

    def peak(self, ids: list[int]) -> dict[str, Any]:
        """The most beyond `import torch` that this process ever had, after a prefill."""
        logits = self._logits(torch.tensor([ids]), "last")
        return {"bytes": resident("VmHWM") - BASELINE, "check": said(logits)}

    def peak_beyond(self, ids: list[int]) -> dict[str, Any]:
        """The same beyond what the load and a first forward of a short prompt left."""
        self._logits(torch.tensor([ids[:16]]), "last")
        reset_peak()
        before = resident()
        logits = self._logits(torch.tensor([ids]), "last")
        return {"bytes": resident("VmHWM") - before, "check": said(logits)}


serve(Peer())
