"""Standing edits: ``with model.edit() as edited:``, what is done to values there is kept, and every run of `edited` does it."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .access import Access, callers_frame, place
from .errors import BadValue, OutsideTrace, ReadOnly
from .saving import enter_tracer, frame_to_watch, leave_tracer

if TYPE_CHECKING:
    from .model import StandardizedTransformer


@dataclass(frozen=True)
class StandingEdit:
    """One edit that every run of a model makes.

    Attributes:
        name: the value's full name.
        text: what is done, as it was written: ``layers.8.mlp.mlp_output[:, -1] *= 0.5``.
        where: the line that it was recorded at.
    """

    name: str
    text: str
    where: str
    _row: int
    _function: Callable[[torch.Tensor], torch.Tensor | None]

    def __str__(self) -> str:
        return self.text

    def _replay(self, live: torch.Tensor) -> torch.Tensor | None:
        try:
            if live is None:
                raise BadValue(
                    f"'{self.name}' is not made in this run, where attention is fused: edit attention_probabilities, or load with "
                    "attn_implementation='eager'."
                )
            return self._function(live)
        except IndexError as error:
            raise BadValue(
                f"the standing edit '{self.text}', recorded at {self.where}, does not fit a value of the shape {list(live.shape)}: "
                f"{error}. A generation's passes have one position each but for the first: use -1, or .apply(function) with a "
                "function that looks at the shape."
            ) from None
        except Exception as error:
            error.add_note(f"in the standing edit '{self.text}', recorded at {self.where}")
            raise


class Edit:
    """``with model.edit() as edited:``. The body runs once, with no run of the model going on."""

    def __init__(self, model: StandardizedTransformer, edited: StandardizedTransformer) -> None:
        self._recorder = Recorder(model, edited)

    def __enter__(self) -> StandardizedTransformer:
        self._recorder.edits = []
        self._recorder._frame = frame_to_watch(sys._getframe(1))
        enter_tracer(self._recorder)
        return self._recorder._model

    def __exit__(self, kind: type | None, *_: Any) -> None:
        leave_tracer(self._recorder)
        if kind is None:
            edited = self._recorder._model
            edited._set_edits([*edited.edits, *self._recorder.edits])


class Recorder(Access):
    """Stands where a run would: reading gives a `RecordedValue`, writing is kept."""

    def __init__(self, model: StandardizedTransformer, edited: StandardizedTransformer) -> None:
        self._model, self._also = edited, model
        self.edits: list[StandingEdit] = []

    def _read(self, row: int, name: str) -> RecordedValue:
        return RecordedValue(self, row, name)

    def _write(self, row: int, name: str, value: Any) -> None:
        RecordedValue(self, row, name)._put(value)

    def _skip(self, first: int, last: int, name: str, value: Any) -> NoReturn:
        raise OutsideTrace(
            "nothing is skipped inside edit(), where no run goes on: zero attention_output and mlp_output there, which is "
            "what the block adds, or skip it in each trace."
        )

    def _save(self, tensor: torch.Tensor, held: bool) -> torch.Tensor:
        return tensor


class RecordedValue:
    """A value inside ``with model.edit()``, where it has no tensor: assignment, ``[...] =``, ``op=``, methods that end in ``_`` and
    `apply` are kept for later runs, all else is refused."""

    def __init__(self, recorder: Recorder, row: int, name: str, path: tuple = ()) -> None:
        self._recorder, self._row, self._name, self._path = recorder, row, name, path

    # --------------------------------------------------------------------------------------------------- what is kept

    def apply(self, function: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        """`function` of the live tensor takes its place in every run; None leaves it, with what was written into it."""

        if not callable(function):
            raise BadValue(f".apply({function!r}): it takes a function of the live tensor.")

        def replayed(part: torch.Tensor) -> torch.Tensor:
            new = function(part)
            if new is not None and not isinstance(new, torch.Tensor):
                raise BadValue(f"the function gave {type(new).__name__}; it must give a tensor, or None.")
            return part if new is None else new

        self._keep(f".apply({getattr(function, '__name__', function)})", replayed)

    def __getitem__(self, index: Any) -> RecordedValue:
        return RecordedValue(self._recorder, self._row, self._name, (*self._path, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index]._put(value)

    def _put(self, value: Any) -> None:
        if isinstance(value, RecordedValue) and value._is(self):
            return  # `x[i] *= 2` has been kept already
        _refuse_values((value,))
        if self._path:
            self._keep(f" = {_described(value)}", lambda part: value)
        elif not isinstance(value, torch.Tensor):
            raise BadValue(
                f"'{self._name}' must be assigned a tensor, but it is assigned {type(value).__name__}; for a number write "
                "[:] = number."
            )
        else:
            name = self._name  # not self: what is kept must not keep the model
            self._keep(f" = {_described(value)}", lambda live: _fit(name, live, value))

    def _is(self, other: RecordedValue) -> bool:
        same = self._row == other._row and len(self._path) == len(other._path)
        return same and all(a is b for a, b in zip(self._path, other._path, strict=True))

    def _keep(self, doing: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        row, path = self._recorder._model._row_table[self._row], self._path
        if row.read_only:
            raise ReadOnly(f"'{self._name}' is derived from other values and cannot be written; write logits.")

        def replay(live: torch.Tensor) -> torch.Tensor:
            if not path:
                return function(live)
            target = live
            for index in path[:-1]:
                target = target[index]
            target[path[-1]] = function(
                target[path[-1]]
            )  # as Python writes `target[i] op= x`: also for lists of indices
            return live

        text = self._name + "".join(f"[{_index_text(index)}]" for index in path) + doing
        self._recorder.edits.append(StandingEdit(self._name, text, place(callers_frame()), self._row, replay))

    # ------------------------------------------------------------------------------------------------ what is known

    @property
    def device(self) -> torch.device:
        return self._recorder._model.device

    def __repr__(self) -> str:
        return f"<'{self._name}' inside edit()>"

    # ----------------------------------------------------------------------------------------------- what is refused

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_") and hasattr(torch.Tensor, name):

            def method(*arguments: Any, **options: Any) -> RecordedValue:
                _refuse_values(arguments)
                given = ", ".join([*map(_described, arguments), *(f"{k}={v!r}" for k, v in options.items())])
                self._keep(f".{name}({given})", lambda part: getattr(part, name)(*arguments, **options))
                return self

            return method
        self._refuse(f".{name}")

    def _refuse(self, use: str) -> NoReturn:
        raise OutsideTrace(
            f"'{self._name}' has no tensor inside edit(), where no run goes on ({use}). Kept for later runs are =, [...] =, op=, methods "
            "that end in _, and .apply(function), whose function is given the live tensor in each run. To read it, open a trace."
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        value = next(a for a in (*args, *(kwargs or {}).values()) if isinstance(a, cls))
        value._refuse(f"torch.{getattr(func, '__name__', func)}")


def _fit(name: str, live: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if live.shape != value.shape:
        raise BadValue(
            f"'{name}' has the shape {list(live.shape)} in this run, but the edit assigns {list(value.shape)}. "
            "An edit for runs of any length writes [...] = what broadcasts, or uses .apply(function)."
        )
    return value


def _described(value: Any) -> str:
    _refuse_values((value,))
    return f"tensor{list(value.shape)}" if isinstance(value, torch.Tensor) and value.ndim else repr(value)


def _refuse_values(arguments: tuple) -> None:
    for value in arguments:
        if isinstance(value, RecordedValue):
            value._refuse("as what is assigned")


def _index_text(index: Any) -> str:
    if isinstance(index, tuple):
        return ", ".join(map(_index_text, index))
    if isinstance(index, slice):
        parts = ["" if part is None else str(part) for part in (index.start, index.stop, index.step)]
        return ":".join(parts if parts[2] else parts[:2])
    return "..." if index is Ellipsis else _described(index)


def _augmented(name: str) -> Callable[[RecordedValue, Any], RecordedValue]:
    function, symbol = (
        getattr(operator, name),
        {"iadd": "+", "isub": "-", "imul": "*", "itruediv": "/", "ipow": "**"}[name],
    )

    def method(self: RecordedValue, other: Any) -> RecordedValue:
        self._keep(f" {symbol}= {_described(other)}", lambda part: function(part, other))
        return self

    return method


def _refused(name: str) -> Callable[..., NoReturn]:
    return lambda self, *_: self._refuse(name)


for _name in ("iadd", "isub", "imul", "itruediv", "ipow"):
    setattr(RecordedValue, f"__{_name}__", _augmented(_name))
for _name in (
    "add sub mul truediv pow matmul mod floordiv neg abs radd rsub rmul rtruediv rpow eq ne lt le gt ge len iter bool float int"
).split():
    setattr(RecordedValue, f"__{_name}__", _refused(_name))
RecordedValue.__hash__ = object.__hash__  # type: ignore[method-assign]
