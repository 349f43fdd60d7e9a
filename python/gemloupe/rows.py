"""Logits as lazy rows: the head is applied only to the rows that are asked for."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .tracing import Tracer


class LogitRows:
    """``model.logits`` before anybody has asked for all of it: [batch, seq, vocab_size].

    ``model.logits[:, -1]`` computes one row a prompt. Any use other than an index of the first two axes computes all rows, and goes
    on as with a tensor.
    """

    def __init__(self, tracer: Tracer, row: int, name: str, stream: torch.Tensor) -> None:
        self._tracer, self._row, self._name = tracer, row, name
        self._core = tracer._core  # of this pass: those of a generation have rows of their own
        self._stream = stream  # what the head reads
        self._parts: list[tuple[Any, torch.Tensor, int]] = []

    # ------------------------------------------------------------------------------------------------ all rows

    def tensor(self) -> torch.Tensor:
        """All rows, as the live tensor; parts that were read and written in place are in it."""
        self._tracer._settle_rows()
        return self._whole()

    def _whole(self) -> torch.Tensor:
        whole = self._core.read(self._row)
        for place, (index, part, version) in enumerate(self._parts):
            if part._version != version:
                whole[index] = part
                self._parts[place] = (index, part, part._version)
        return whole

    def settle(self) -> bool:
        """Before anything else reads the logits: parts that were written must be in them. Whether there were any."""
        written = any(part._version != version for _, part, version in self._parts)
        if written:
            self._whole()
        return written

    def save(self) -> torch.Tensor:
        return self.tensor().save()

    # ------------------------------------------------------------------------------------------------ some rows

    def __getitem__(self, index: Any) -> torch.Tensor:
        rows = self._rows_index(index)
        core = self._core
        if rows is None or self._tracer._settle_rows() or not core.rows_are_lazy(self._row):
            return self.tensor()[index]
        for known, part, _ in self._parts:  # two names of one part: what is written last counts
            if _same_index(known, index):
                return part
        part = core.apply_head(self._row, self._stream[rows])
        if isinstance(index, tuple) and len(index) == 3:
            part = part[..., index[2]]
        self._parts.append((index, part, part._version))
        return part

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tensor()[index] = value

    @staticmethod
    def _rows_index(index: Any) -> Any:
        """The part of an index that picks rows, or None where all are wanted or the axes move."""
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > 3 or any(part is None or part is Ellipsis for part in parts):
            return None
        if any(isinstance(part, torch.Tensor) and part.dtype == torch.bool for part in parts):
            return None
        if len(parts) == 3 and not isinstance(parts[2], (int, slice)):
            return None  # an index tensor of the vocabulary is broadcast with those of the rows
        if (
            any(isinstance(part, (list, torch.Tensor)) for part in parts[:2])
            and len(parts) == 3
            and isinstance(parts[2], int)
        ):
            return None
        rows = parts[:2]
        if all(isinstance(part, slice) and part == slice(None) for part in rows):
            return None
        return rows

    # ------------------------------------------------------------------------------------------- otherwise a tensor

    @property
    def shape(self) -> torch.Size:
        return torch.Size([*self._stream.shape[:2], self._tracer._model.vocab_size])

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    @property
    def dtype(self) -> torch.dtype:
        return self._stream.dtype

    @property
    def device(self) -> torch.device:
        return self._stream.device

    @property
    def ndim(self) -> int:
        return 3

    def dim(self) -> int:
        return 3

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(self.tensor())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def whole(value: Any) -> Any:
            if isinstance(value, LogitRows):
                return value.tensor()
            if isinstance(value, (list, tuple)):
                return type(value)(whole(item) for item in value)
            return value

        return func(*whole(args), **{key: whole(value) for key, value in (kwargs or {}).items()})

    def __repr__(self) -> str:
        return f"LogitRows({self._name}, shape={tuple(self.shape)}, computed as rows are asked for)"


def _same_index(a: Any, b: Any) -> bool:
    """Indices of integers and slices that are equal; of tensors and lists it is not asked."""
    plain = lambda index: all(isinstance(p, (int, slice)) for p in (index if isinstance(index, tuple) else (index,)))  # noqa: E731
    return plain(a) and plain(b) and a == b


def _forward(name: str) -> Any:
    function = getattr(operator, name, None)

    def method(self: LogitRows, *others: Any) -> Any:
        others = tuple(other.tensor() if isinstance(other, LogitRows) else other for other in others)
        if function is not None:
            return function(self.tensor(), *others)
        return getattr(self.tensor(), name)(*others)

    method.__name__ = name
    return method


for _name in (
    "__add__ __sub__ __mul__ __truediv__ __pow__ __matmul__ __mod__ __floordiv__ __neg__ __abs__ __eq__ __ne__ __lt__ __le__ __gt__ "
    "__ge__ __radd__ __rsub__ __rmul__ __rtruediv__ __rpow__ __iadd__ __isub__ __imul__ __itruediv__"
).split():
    setattr(LogitRows, _name, _forward(_name))
LogitRows.__hash__ = object.__hash__  # type: ignore[method-assign]
