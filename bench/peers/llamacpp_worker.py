"""llama.cpp through llama-cpp-python's plain bindings, as a peer that answers requests. It has what it is fastest with: sliding
caches of the window's size, its own choice of attention, and logits of the last row alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serve import Stopwatch, resident, serve

BASELINE = resident()
import llama_cpp as llama  # noqa: E402
import numpy  # noqa: E402

BATCH = 2048  # tokens that one call takes; llama.cpp's own default
SOME = 64  # of a row of logits as many as a check needs


@llama.llama_log_callback
def _silent(level: int, text: bytes, data: Any) -> None:
    """llama.cpp's chatter goes nowhere."""


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        """`dtype` is the file's business here."""
        llama.llama_log_set(_silent, None)
        llama.llama_backend_init()
        self.model = llama.llama_model_load_from_file(model.encode(), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        self.threads, self.room, self.context = threads, 0, None
        self.vocabulary = llama.llama_model_get_vocab(self.model)
        self.size = llama.llama_vocab_n_tokens(self.vocabulary)
        self.running: list[int] = []
        return {}

    def _ready(self, room: int) -> None:
        """An empty context with room for so many tokens."""
        if room > self.room:
            if self.context:
                llama.llama_free(self.context)
            self.room = max(512, room)
            options = llama.llama_context_default_params()
            options.n_ctx, options.n_batch, options.swa_full = self.room, BATCH, False
            options.n_threads = options.n_threads_batch = self.threads
            self.context = llama.llama_init_from_model(self.model, options)
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def _run(self, ids: Sequence[int]) -> None:
        for begin in range(0, len(ids), BATCH):
            part = ids[begin : begin + BATCH]
            tokens = (llama.llama_token * len(part))(*part)  # the batch points into it
            if llama.llama_decode(self.context, llama.llama_batch_get_one(tokens, len(part))):
                raise RuntimeError("llama_decode failed")

    def _logits(self) -> Any:
        """The last token's, as a pointer."""
        return llama.llama_get_logits_ith(self.context, -1)

    def _top(self) -> int:
        return int(numpy.ctypeslib.as_array(self._logits(), (self.size,)).argmax())

    def prefill(self, ids: list[int], rows: str) -> dict[str, Any]:
        if rows != "last":
            raise ValueError("llama.cpp is asked for the last row of logits alone.")
        self._ready(len(ids))
        with Stopwatch() as watch:
            self._run(ids)
            logits = self._logits()
        return {"samples": watch.samples, "check": {"some": logits[:SOME], "tokens": [self._top()]}}

    def decode(self, ids: list[int], tokens: int) -> dict[str, Any]:
        self._ready(len(ids) + tokens)
        self._run(ids)
        some, made = self._logits()[:SOME], [self._top()]
        with Stopwatch() as watch:
            for _ in range(tokens - 1):
                self._run(made[-1:])
                made.append(self._top())
                watch.lap()
        return {"samples": watch.samples[:-1], "check": {"some": some, "tokens": made}}

    def decode_on(self, ids: list[int], tokens: int) -> dict[str, Any]:
        """The prompt is read by the first call; each makes so many tokens more."""
        if not self.running:
            self._ready(len(ids) + 512)
            self._run(ids)
            self.running, self.some = [self._top()], self._logits()[:SOME]
        with Stopwatch() as watch:
            for _ in range(tokens):
                self._run(self.running[-1:])
                self.running.append(self._top())
                watch.lap()
        return {"samples": watch.samples[1:-1], "check": {"some": self.some, "tokens": self.running[:1]}}

    def memory(self, text: str) -> dict[str, Any]:
        """Beyond the bare process, after the load and a first forward of a text."""
        ids = (llama.llama_token * 64)()
        count = llama.llama_tokenize(self.vocabulary, text.encode(), len(text.encode()), ids, len(ids), True, True)
        self._ready(count)
        self._run(ids[:count])
        size = resident() - BASELINE
        return {"bytes": size, "check": {"some": self._logits()[:SOME], "tokens": [self._top()]}}


serve(Peer())
