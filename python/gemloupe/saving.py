"""``.save()``: a snapshot of a tensor inside a trace, which later edits in place do not change.

A copy is made only where somebody could still write into the tensor: a slice, or a tensor that the body holds. Otherwise the
snapshot is the live tensor itself, and the engine copies the value if it is accessed again.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
from typing import Any

import torch

#: The tracers that are open here, innermost last: threads and asyncio tasks have contexts of their own.
_open: contextvars.ContextVar[tuple] = contextvars.ContextVar("gemloupe_open_tracers", default=())


#: Functions whose frames can be left in the middle: generators, coroutines, asynchronous generators.
_CAN_BE_LEFT = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def open_tracers() -> tuple:
    """The tracers whose bodies are being run, innermost last. A generator that waits inside a body shares its caller's context, but
    its run is not the caller's: its frame has nothing behind it."""
    tracers = _open.get()
    for tracer in tracers:
        if tracer._frame is not None and tracer._frame.f_back is None:
            return tuple(t for t in tracers if t._frame is None or t._frame.f_back is not None)
    return tracers


def frame_to_watch(frame: Any) -> Any:
    """The frame of a body that can be left in the middle, None for all others.

    Not of a generator that is itself a context manager (``@contextmanager``) or a fixture: what it opens is its caller's.
    """
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":  # an ExitStack: who called it
        frame = frame.f_back
    if frame is None or not frame.f_code.co_flags & _CAN_BE_LEFT:
        return None
    behind = frame.f_back.f_globals.get("__name__", "") if frame.f_back is not None else ""
    return None if behind in ("contextlib", "_pytest.fixtures") else frame


def enter_tracer(tracer: Any) -> None:
    _open.set((*_open.get(), tracer))


def leave_tracer(tracer: Any) -> None:
    _open.set(tuple(other for other in _open.get() if other is not tracer))


def _references_of_a_temporary() -> int:
    """How many references `sys.getrefcount` counts in a method of a tensor that nobody else holds."""
    return torch.empty(0)._gemloupe_count()


def save(tensor: Any) -> Any:
    """A snapshot of a tensor (or of the tensors in a tuple, list or dict): what the run does later does not change it."""
    if isinstance(tensor, torch.Tensor):
        return _snapshot(tensor, held=True)
    if hasattr(tensor, "save"):
        return tensor.save()
    if isinstance(tensor, dict):
        return {key: save(value) for key, value in tensor.items()}
    if isinstance(tensor, tuple) and hasattr(tensor, "_fields"):  # a named tuple takes its members one by one
        return type(tensor)(*map(save, tensor))
    if isinstance(tensor, (list, tuple)):
        saved = [save(value) for value in tensor]
        return saved if isinstance(tensor, list) else tuple(saved)
    return tensor


def _snapshot(tensor: torch.Tensor, held: bool) -> torch.Tensor:
    if not (tracers := open_tracers()):
        return tensor
    tracer = tracers[-1]
    # With several runs open the value may be another's, which would not know of this snapshot: then it is a copy.
    return tracer._save(tensor, held or len(tracers) > 1)


def _save_method(self: torch.Tensor) -> torch.Tensor:
    """A snapshot of this tensor. Outside a trace: the tensor itself."""
    if not _open.get() and (others := getattr(object, "save", None)) is not None:
        return others(self)  # nnsight gives every object a method of this name, which its own traces need
    # Counted before `self` is passed on. Where C++ holds the tensor, too, as the run does its values, there is one more.
    held = sys.getrefcount(self) > _TEMPORARY + (self._use_count() > 1)
    return _snapshot(self, held)


torch.Tensor._gemloupe_count = lambda self: sys.getrefcount(self)  # type: ignore[attr-defined]
_TEMPORARY = _references_of_a_temporary()
del torch.Tensor._gemloupe_count  # type: ignore[attr-defined]
torch.Tensor.save = _save_method  # type: ignore[attr-defined, method-assign]


class SavedTuple(tuple):
    """A tuple of tensors that has ``.save()``: what a module returns or is called with."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return SavedTuple(found) if isinstance(key, slice) else found

    def save(self) -> SavedTuple:
        return type(self)(save(value) for value in self)


class SavedDict(dict):
    """A dictionary of tensors that has ``.save()``: the keyword arguments that a module is called with."""

    def save(self) -> SavedDict:
        return SavedDict((key, save(value)) for key, value in self.items())


class SavedSize(tuple):
    """Sizes, with ``.save()``: torch.Size cannot be derived from."""

    def save(self) -> SavedSize:
        return self


class NamedOutput(SavedTuple):
    """The reference's ModelOutput: members by name, by key or by index."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: list[str], members: list) -> NamedOutput:
        output = cls(members)
        output.names = tuple(names)
        return output

    def __getattr__(self, name: str) -> Any:
        if name in self.names:
            return self[self.names.index(name)]
        raise AttributeError(f"this output has {', '.join(self.names)}, not '{name}'")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return getattr(self, key)
        return super().__getitem__(key)

    def keys(self) -> tuple[str, ...]:
        return self.names

    def save(self) -> NamedOutput:
        return NamedOutput.of(list(self.names), [save(value) for value in self])
