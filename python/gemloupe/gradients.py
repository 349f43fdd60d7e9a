"""The way back: ``with tracer.backward(loss) as gradients:``, gradients read and changed value by value."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from .errors import BadValue, OutOfOrder

if TYPE_CHECKING:
    from .tracing import Tracer


class Gradients:
    """The gradients of one loss, by value: ``gradients[stream]`` is live, what is written into it goes on to what lies before.

    ::

        with model.trace(prompt, grad=True) as tracer:
            early = model.layers[2].layer_output
            late = model.layers[8].layer_output
            with tracer.backward(model.logits[0, -1, 7]) as gradients:
                gradients[late][:, 0] = 0          # nothing comes back through the first position
                print(gradients[early].norm())     # without it

    Values have their ``.grad`` when the block ends, as after ``loss.backward()``. A gradient is changed before those of earlier
    values are read, since they are made of it.
    """

    def __init__(self, run: Tracer, loss: torch.Tensor, retain_graph: bool = False) -> None:
        self._run = run
        self._loss, self._retain_graph = loss, retain_graph
        self._read: list[
            tuple[torch.Tensor, torch.Tensor, int]
        ] = []  # value, its gradient and the version that was handed out
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Gradients:
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        try:
            if kind is None:
                self._refuse_late_writes()
                self._loss.backward(retain_graph=self._retain_graph)
        finally:
            for hook in self._hooks:
                hook.remove()

    def __getitem__(self, value: torch.Tensor) -> torch.Tensor:
        """The gradient of the loss with respect to a value, in the value's shape and dtype.

        Raises:
            BadValue: not a value that records its gradient, or one that the loss does not depend on.
            OutOfOrder: a later value's gradient was changed after an earlier one's had been read.
        """
        self._refuse_late_writes()
        for known, gradient, _ in self._read:
            if known is value:
                return gradient
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            raise BadValue(
                "gradients[...] takes a value that was read in this trace and records its gradient: "
                "open it with model.trace(prompt, grad=True), and keep what you read in a variable."
            )
        found = self._gradient(self._loss, value)
        if found is None:
            if value._base is not None:
                raise BadValue(
                    "this is a part of a value: write gradients[value][...] with the part's index behind it."
                )
            raise BadValue("the loss does not depend on this value, so it has no gradient.")
        gradient = found.clone()
        self._read.append((value, gradient, gradient._version))
        self._hooks.append(value.register_hook(lambda _: gradient))
        return gradient

    def __setitem__(self, value: torch.Tensor, gradient: torch.Tensor) -> None:
        """Puts a gradient of the value's shape in the place of its own."""
        live = self[value]
        if gradient is live:  # `gradients[value] *= 2` has written already
            return
        if not isinstance(gradient, torch.Tensor) or gradient.shape != live.shape:
            raise BadValue(
                f"a gradient has its value's shape {list(live.shape)}; write a part by gradients[value][...] =."
            )
        live.copy_(gradient)

    def _refuse_late_writes(self) -> None:
        for at, (value, gradient, version) in enumerate(self._read):
            if gradient._version == version:
                continue
            if any(earlier is not value and self._is_made_of(value, earlier) for earlier, _, _ in self._read):
                raise OutOfOrder(
                    "a gradient was changed after that of an earlier value had been read, which is made of it. Gradients come in the "
                    "reverse order of the forward pass: change the later value's first."
                )
            self._read[at] = (value, gradient, gradient._version)

    def _is_made_of(self, value: torch.Tensor, earlier: torch.Tensor) -> bool:
        return value.grad_fn is not None and self._gradient(value.sum(), earlier) is not None

    def _gradient(self, of: torch.Tensor, value: torch.Tensor) -> torch.Tensor | None:
        """Without a trace of it: values on the way add to their own `.grad`, which is for the block's end to do."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch takes the question for a mistake where there is none
            before = [(held, held.grad) for held in self._run._recorded()]
        (found,) = torch.autograd.grad(of, value, retain_graph=True, allow_unused=True)
        for held, gradient in before:
            held.grad = gradient
        return found
