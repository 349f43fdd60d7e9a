"""Runs of more than one pass: a generation step by step, and several prompts in one trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from . import _core
from .errors import BadPrompt, OutsideTrace
from .saving import open_tracers
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
        super().__init__(model, generation.take() if not generation.finished else None)

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        try:
            if error is None:
                while self._core is not None and not self._core.finished:
                    self._next_pass()
        finally:
            cores, self._kept = self._kept, []
            written = [name for core in cores if (name := core.end()) is not None]
            if self._core is None:  # every pass is over
                self._core = cores[-1] if cores else _core.Trace(self._model._core, self._model._prompt([0]))
            super().__exit__(kind, error, traceback)
            if error is None and written:
                self._refuse_written(written[0])

    def _next_pass(self) -> bool:
        """Draws a token and goes on to the pass after it; False where the generation is over."""
        self._settle_rows()
        self._logit_rows.clear()
        self._generation.finish(self._core)
        self._kept.append(self._core)
        self._step += 1
        self._last_place = None
        self._core = None if self._generation.finished else self._generation.take()
        return self._core is not None

    @property
    def iter(self) -> Steps:
        """`for step in tracer.iter[:]`: the passes, each with its number; `[2:5]`, `[3]` or a list picks some."""
        return Steps(self)

    def next(self) -> int:
        """Goes on to the next pass, and gives its number."""
        if self._core is None or self._core.finished or not self._next_pass():
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
        if isinstance(wanted, slice) and (wanted.step or 1) < 0:
            raise BadPrompt("passes are taken forwards: the step of tracer.iter[...] must be above 0.")
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
        return max(wanted) if isinstance(wanted, (list, tuple, range)) else wanted

    def __iter__(self) -> Iterator[int]:
        tracer, last = self._tracer, self._last()
        while tracer._core is not None:
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
        self._model, self._grad = model, grad

    def __enter__(self) -> Invokes:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def invoke(self, prompt: PromptLike, **options: Any) -> Tracer:
        """`with tracer.invoke(prompt):` is `with model.trace(prompt):`."""
        return self._model.trace(prompt, grad=self._grad, **options)

    def barrier(self, count: int = 0) -> Any:
        """Accepted for compatibility: invokes run one after the other, so there is nothing to wait for."""
        return lambda: None

    def stop(self) -> None:
        for tracer in open_tracers():
            if tracer._model is self._model:
                tracer.stop()
