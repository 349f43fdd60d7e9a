"""Runs of more than one pass: a generation step by step, and several prompts in one trace."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import _core
from .errors import BadOption, OutsideTrace
from .saving import frame_to_watch, open_tracers
from .tracing import Tracer

if TYPE_CHECKING:
    from .model import PromptLike, StandardizedTransformer


class GenerationTracer(Tracer):
    """A generation that the body takes pass by pass: values are those of the current one, the prompt's to begin with.

    ::

        with model.generate(prompt, max_new_tokens=5) as tracer:
            for step in tracer.iter[:]:
                model.layers[3].layer_output[:, -1] += vector
        tracer.result  # the ids [batch, prompt + new]
    """

    def __init__(self, model: StandardizedTransformer, generation: _core.Generation) -> None:
        self._generation = generation
        self._step = 0
        self._kept: list[_core.Trace] = []  # passes that are over, with the snapshots taken in them
        super().__init__(model, generation.take())

    def __enter__(self) -> GenerationTracer:
        super().__enter__()
        self._frame = frame_to_watch(sys._getframe(1))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        written = None
        try:
            while error is None and self._next_pass():
                pass
        finally:
            kept, self._kept = self._kept, []
            written = [name for core in kept if core is not self._core and (name := core.end()) is not None]
            super().__exit__(kind, error, traceback)
            if error is None and written:
                self._refuse_written(written[0])

    def _next_pass(self) -> bool:
        """Draws a token and goes on to the pass after it; False where the generation is over, or was stopped."""
        if self._core.finished:
            return False
        self._settle_rows()
        self._logit_rows.clear()
        self._generation.finish(self._core)
        self._step += 1
        self._last_place = None
        if self._generation.finished:
            return False
        self._kept.append(self._core)
        self._core = self._generation.take()
        return True

    @property
    def iter(self) -> Steps:
        """`for step in tracer.iter[:]`: the passes, each with its number; `[2:5]`, `[3]` or a list picks some."""
        return Steps(self)

    def next(self) -> int:
        """Goes on to the next pass, and gives its number."""
        if not self._next_pass():
            raise OutsideTrace("the generation is over: every token has been made.")
        return self._step

    @property
    def result(self) -> torch.Tensor:
        """The ids so far [batch, prompt + new]; inside the body those before the current pass's token."""
        return self._generation.ids


class Steps:
    """The passes of a generation; indexing picks some, iterating takes them in order."""

    def __init__(self, tracer: GenerationTracer, wanted: Any = slice(None)) -> None:
        self._tracer, self._wanted = tracer, wanted

    def __getitem__(self, wanted: Any) -> Steps:
        if isinstance(wanted, slice):
            numbers = [part for part in (wanted.start, wanted.stop, wanted.step) if part is not None]
        else:
            numbers = list(wanted) if isinstance(wanted, (list, tuple, range)) else [wanted]
        if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in numbers):
            raise BadOption(
                "tracer.iter[...] takes passes by number, from 0 and forwards: how many there will be is not known before the end, so "
                "none is counted from it."
            )
        if isinstance(wanted, slice) and wanted.step == 0:
            raise BadOption("the step of tracer.iter[...] must be above 0.")
        return Steps(self._tracer, wanted)

    def _wants(self, step: int) -> bool:
        wanted = self._wanted
        if isinstance(wanted, slice):
            start, stop = wanted.start or 0, wanted.stop
            return step >= start and (stop is None or step < stop) and (step - start) % (wanted.step or 1) == 0
        return step in (list(wanted) if isinstance(wanted, (list, tuple, range)) else [wanted])

    def _last(self) -> int | None:
        """The last pass that can be wanted, None where there is no end."""
        wanted = self._wanted
        if isinstance(wanted, slice):
            return None if wanted.stop is None else wanted.stop - 1
        return max(wanted, default=-1) if isinstance(wanted, (list, tuple, range)) else wanted

    def __iter__(self) -> Iterator[int]:
        tracer, last = self._tracer, self._last()
        while not tracer._core.finished and (last is None or tracer._step <= last):
            if self._wants(tracer._step):
                yield tracer._step
            if last is not None and tracer._step >= last:
                return
            if not tracer._next_pass():
                return

    def __enter__(self) -> Steps:
        raise OutsideTrace(
            "`with tracer.iter[...]` would run its body once: the body of a trace is ordinary Python. "
            "Write `for step in tracer.iter[...]:`."
        )

    def __exit__(self, *_: Any) -> None: ...


class Invokes:
    """`with model.trace() as tracer:` without a prompt: several prompts, each a run of its own over its own rows.

    No padding enters, and what an earlier invoke has saved can be used in a later one.
    """

    def __init__(self, model: StandardizedTransformer, grad: bool) -> None:
        self._model, self._grad, self._stopped = model, grad, False

    def __enter__(self) -> Invokes:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def invoke(self, prompt: PromptLike, **options: Any) -> Tracer:
        """`with tracer.invoke(prompt):` is `with model.trace(prompt):`. Raises OutsideTrace after `stop`."""
        if self._stopped:
            raise OutsideTrace("tracer.stop() has ended this trace: no further prompt is run.")
        return self._model.trace(prompt, **{"grad": self._grad, **options})

    def cache(self, *_: Any, **__: Any) -> Any:
        raise OutsideTrace(
            "no run goes on here: open the cache where one does, `with tracer.invoke(prompt) as run: cache = run.cache(...)`."
        )

    def barrier(self, count: int = 0) -> Any:
        """Accepted for compatibility: invokes run one after the other, so there is nothing to wait for."""
        return lambda: None

    def stop(self) -> None:
        """Nothing of the model runs after this: the invoke that is open ends, and no other begins."""
        self._stopped = True
        for tracer in open_tracers():
            if tracer._model is self._model:
                tracer.stop()


class Generator:
    """`model.generator`: what a generation has made."""

    def __init__(self, model: StandardizedTransformer) -> None:
        self._model = model

    @property
    def output(self) -> torch.Tensor:
        """The ids so far [batch, prompt + new], int64. Raises OutsideTrace where no generation goes on."""
        tracer = self._model._tracer("generator.output")
        if not isinstance(tracer, GenerationTracer):
            raise OutsideTrace("'generator.output' is there in `with model.generate(...)`; this trace is of one pass.")
        return tracer.result
