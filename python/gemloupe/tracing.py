"""A trace: a ``with`` body that pulls values out of one run of the model."""

from __future__ import annotations

import functools
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from .caching import Cache, names_of
from .errors import BadValue, OutOfOrder, ReadOnly, SnapshotWritten
from .rows import LogitRows
from .saving import NamedOutput, SavedSize, SavedTuple, enter_tracer, leave_tracer

if TYPE_CHECKING:
    from . import _core
    from .model import StandardizedTransformer


class Tracer:
    """One run. Inside the body, ``model.layers[5].layer_output`` is the live tensor of that value: the model has run up to it."""

    def __init__(self, model: StandardizedTransformer, core: _core.Trace) -> None:
        self._model = model
        self._core = core
        self._last_name = ""
        self._last_place: tuple[CodeType, int] | None = None  # code and the instruction in it
        self._logit_rows: dict[int, LogitRows] = {}
        self._caches: list[Cache] = []
        self._derived: list[tuple[str, torch.Tensor, int]] = []  # what was read and must not be written

    # ----------------------------------------------------------------------------------------------------- the body

    def __enter__(self) -> Tracer:
        enter_tracer(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        leave_tracer(self)
        if error is None and self._caches and not self._core.finished:
            self._core.run_actions()  # what is to be collected behind the last read
        written = self._core.end()
        self._logit_rows.clear()  # each refers to this tracer: left to the collector, its tensors would stay
        derived, self._derived = self._derived, []
        if error is None and (changed := [name for name, value, version in derived if value._version != version]):
            raise ReadOnly(
                f"'{changed[0]}' was written in place, which changes nothing: it is derived from other values. Write logits, "
                "or work on a .clone()."
            )
        if error is None and written is not None:
            self._refuse_written(written)

    @staticmethod
    def _refuse_written(name: str) -> None:
        raise SnapshotWritten(
            f"what .save() returned ('{name}') was written inside its own trace. A snapshot is not the model's value: "
            f"to edit the run write '{name}' itself, to compute on the side write to a .clone()."
        )

    def stop(self) -> None:
        """Nothing of the model runs after this; every later access in the body is refused."""
        self._core.finish()

    @property
    def input_size(self) -> SavedSize:
        """[batch, seq] of this run."""
        return SavedSize(self._core.input_size)

    def cache(
        self,
        modules: Any = None,
        values: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        include_inputs: bool = False,
    ) -> Cache:
        """Collects values (names or globs) and modules' outputs as the run goes by; every block's output if neither is named.

        The run goes on to the last of them when the body ends. Edits of the body are in what is collected if they come before
        the run has passed the value.

        Raises:
            UnknownName, Absent: as for reading. OutOfOrder: the run has passed one of them.
        """
        names = names_of(self._model, modules, values, include_inputs)
        cache = Cache(self, device, dtype)
        for name in names:
            self._core.when(self._model._row(name), functools.partial(cache._take, name))
        self._caches.append(cache)
        return cache

    def point(self, name: str) -> _core.TracePoint:
        """Everything that is alive where the value `name` is: `model.trace(start_from=point)` goes on from there."""
        return self._core.point(self._model._row(name))

    def barrier(self, count: int = 0) -> Any:
        """Accepted for compatibility: there is nothing to wait for."""
        return lambda: None

    # ---------------------------------------------------------------------------------------------------- by name

    def read(self, name: str) -> Any:
        """The live value of that name (``"layers.3.mlp.mlp_output"``, ``"model.layers.3.mlp.input"``)."""
        return self._read(self._model._row(name), name)

    def write(self, name: str, value: torch.Tensor) -> None:
        """Replace the value of that name."""
        self._write(self._model._row(name), name, value)

    # ------------------------------------------------------------------------------------------------ for the modules

    def _read(self, row: int, name: str) -> Any:
        try:
            value = self._read_special(row, name) if row in self._model._special_rows else None
            if value is None:
                value = self._core.read(row)
        except OutOfOrder as error:
            raise self._placed(error, name) from None
        self._note(name)
        return value

    def _read_special(self, row: int, name: str) -> Any:
        """Sizes, and lazy rows of logits; None where the value is read like any other."""
        if row == self._model._input_size_row:
            return self.input_size
        if row == self._model._probabilities_row:
            self._settle_rows()
            value = self._core.read(row)
            self._derived.append((name, value, value._version))
            return value
        if (stream := self._core.head_input(row)) is None:
            return None
        if (found := self._logit_rows.get(row)) is None:
            found = self._logit_rows[row] = LogitRows(self, row, name, stream)
        return found

    def _settle_rows(self) -> bool:
        """Puts parts of logits that were written into the whole; False where none was."""
        settled = [rows.settle() for rows in list(self._logit_rows.values())]
        return any(settled)

    def _write(self, row: int, name: str, value: torch.Tensor) -> None:
        if isinstance(value, LogitRows):
            value = value.tensor()
        elif not isinstance(value, torch.Tensor):
            raise BadValue(f"'{name}' must be assigned a tensor, but it is assigned {type(value).__name__}.")
        try:
            self._core.write(row, value)
        except OutOfOrder as error:
            raise self._placed(error, name) from None
        self._note(name)

    def _read_part(self, part: Any, name: str) -> Any:
        """A leaf, None, or a tuple of parts, as the plan describes what a module returns or is called with."""
        if part is None:
            return None
        if isinstance(part, int):
            return self._read(part, name)
        _, members, names = part
        values = [self._read_part(member, name) for member in members]
        return NamedOutput.of(names, values) if names else SavedTuple(values)

    def _write_part(self, part: Any, name: str, value: Any) -> None:
        if part is None:
            return
        if isinstance(part, int):
            self._write(part, name, value)
            return
        _, members, _ = part
        if not isinstance(value, (tuple, list)) or len(value) != len(members):
            raise BadValue(
                f"'{name}' is a tuple of {len(members)}: assign a tuple of as many, such as (tensor, *{name.split('.')[-1]}[1:]), "
                "in which None leaves a member as it is."
            )
        for member, new in zip(members, value, strict=True):
            if new is not None:
                self._write_part(member, name, new)

    # --------------------------------------------------------------------------------------------------- for messages

    def _note(self, name: str) -> None:
        # On the way of every access: the line is looked up when a message needs it, and frames between are not made.
        frame = sys._getframe(3)  # _read or _write, and the attribute or the method that was called
        if frame.f_globals.get("__package__") == __package__:
            frame = _callers_frame()
        self._last_name = name
        self._last_place = (frame.f_code, frame.f_lasti)

    def _placed(self, error: OutOfOrder, name: str) -> OutOfOrder:
        """The same error with the lines of the caller's code that both names stand on."""
        frame = _callers_frame()
        here = f"line {frame.f_lineno} of {frame.f_code.co_filename}"
        if self._last_place is None:
            return OutOfOrder(f"{error} ('{name}': {here})")
        code, instruction = self._last_place
        line = next(line for first, end, line in code.co_lines() if first <= instruction < end)
        return OutOfOrder(f"{error} ('{self._last_name}': line {line} of {code.co_filename}; '{name}': {here})")


def _callers_frame() -> Any:
    """The innermost frame outside this package."""
    frame = sys._getframe(3)
    while frame.f_globals.get("__package__") == __package__ and (outer := frame.f_back) is not None:
        frame = outer
    return frame
