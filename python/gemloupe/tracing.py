"""A trace: a ``with`` body that pulls values out of one run of the model."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from .access import Access, callers_frame, place
from .caching import Cache, names_of
from .errors import BadOption, BadValue, OutOfOrder, ReadOnly, SnapshotWritten
from .gradients import Gradients
from .rows import LogitRows
from .saving import SavedSize, enter_tracer, frame_to_watch, leave_tracer

if TYPE_CHECKING:
    from . import _core
    from .model import StandardizedTransformer


class Tracer(Access):
    """One run. Inside the body, ``model.layers[5].layer_output`` is the live tensor of that value: the model has run up to it."""

    def __init__(self, model: StandardizedTransformer, core: _core.Trace) -> None:
        self._model = model
        self._core = core
        self._last_name = ""
        self._last_place: tuple[CodeType, int] | None = None  # code and the instruction in it
        self._logit_rows: dict[int, LogitRows] = {}
        self._caches: list[Cache] = []
        self._derived: list[tuple[str, torch.Tensor, int]] = []  # what was read and must not be written
        self._copies: list[weakref.ref[torch.Tensor]] = []  # snapshots that are handed their gradients

    # ----------------------------------------------------------------------------------------------------- the body

    def __enter__(self) -> Tracer:
        self._frame = frame_to_watch(sys._getframe(1))
        enter_tracer(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        leave_tracer(self)
        self._frame = None
        if error is None and self._caches and not self._core.finished:
            self._settle_rows()
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
        self._settle_rows()
        cache = Cache(self, device, dtype)
        for name in names:
            try:
                self._core.when(self._model._row(name), functools.partial(cache._take, name))
            except OutOfOrder as error:
                raise self._placed(error, name) from None
        self._caches.append(cache)
        return cache

    def point(self, name: str) -> _core.TracePoint:
        """Everything that is alive where the value `name` is: `model.trace(start_from=point)` goes on from there."""
        self._settle_rows()
        try:
            point = self._core.point(self._model._row(name))
        except OutOfOrder as error:
            raise self._placed(error, name) from None
        self._note(name, callers_frame())
        return point

    def invoke(self, *_: Any, **__: Any) -> Any:
        raise BadOption(
            "this trace has a prompt of its own. For several, open it without one: with model.trace() as tracer: "
            "with tracer.invoke(prompt): ..."
        )

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> Gradients:
        """`with tracer.backward(loss) as gradients:` is `loss.backward()` whose gradients can be read and changed on the way.

        ``gradients[value]`` is the live gradient of a value that the trace has read; what is written into it, or assigned,
        is what the values before it are given. See `gemloupe.gradients.Gradients`.
        """
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            found = f"of the shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise BadValue(f"tracer.backward takes a loss of one element, but it is {found}.")
        if not loss.requires_grad:
            raise BadValue("the loss depends on no value that records: open the trace with grad=True.")
        return Gradients(self, loss, retain_graph)

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

    def _skip(self, first: int, last: int, name: str, value: Any) -> None:
        """Leaves out the modules from `first` to `last`; None: what enters goes on."""
        if isinstance(value, (tuple, list)):
            value = value[0]
        if isinstance(value, LogitRows):
            value = value.tensor()
        if value is not None and not isinstance(value, torch.Tensor):
            raise BadValue(f"'{name}' is replaced by {type(value).__name__}; it must be a tensor.")
        try:
            self._core.skip(first, last, value)
        except OutOfOrder as error:
            raise self._placed(error, name) from None
        self._note(name, callers_frame())

    def _save(self, tensor: torch.Tensor, held: bool) -> torch.Tensor:
        beside = tensor.requires_grad and (held or tensor._is_view())
        taken = self._core.snapshot(tensor, held or beside, self._last_name)
        if beside and taken.requires_grad:
            _pass_gradient(tensor, taken)
            self._copies.append(weakref.ref(taken))
        return taken

    def _recorded(self) -> list[torch.Tensor]:
        """The values and snapshots of this run that have gradients, and that somebody still holds."""
        copies = [copy for held in self._copies if (copy := held()) is not None]
        return [*self._core.recorded(), *copies]

    # --------------------------------------------------------------------------------------------------- for messages

    def _note(self, name: str, frame: Any = None) -> None:
        # On the way of every access: the line is looked up when a message needs it, and frames between are not made.
        frame = frame or sys._getframe(3)  # _read or _write, and the attribute or the method that was called
        if frame.f_globals.get("__package__") == __package__:
            frame = callers_frame()
        self._last_name = name
        self._last_place = (frame.f_code, frame.f_lasti)

    def _placed(self, error: OutOfOrder, name: str) -> OutOfOrder:
        """The same error with the lines of the caller's code that both names stand on."""
        here = place(callers_frame())
        if self._last_place is None:
            return OutOfOrder(f"{error} ('{name}': {here})")
        code, instruction = self._last_place
        line = next(line for first, end, line in code.co_lines() if first <= instruction < end)
        return OutOfOrder(f"{error} ('{self._last_name}': line {line} of {code.co_filename}; '{name}': {here})")


def _pass_gradient(value: torch.Tensor, snapshot: torch.Tensor) -> None:
    """A snapshot that is a copy lies beside the run's way, which goes through the value, or through the whole that the value is a part
    of: what comes back there is handed to the snapshot."""
    whole = value if value._base is None else value._base
    part = (value.shape, value.stride(), value.storage_offset() - whole.storage_offset())
    held = weakref.ref(snapshot)  # the hook is the whole's: naming that in it would keep it for ever
    layout = (whole.shape, whole.stride())

    def hand(gradient: torch.Tensor) -> None:
        if (alive := held()) is not None:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch takes the question for a mistake
                own = torch.empty_strided(*layout, dtype=gradient.dtype, device=gradient.device).copy_(gradient)
                own = own.as_strided(*part).clone()
                alive.grad = own if alive.grad is None else alive.grad + own

    whole.register_hook(hand)
