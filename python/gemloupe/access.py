"""What the attributes of modules go through: a run, or the recording of edits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .errors import BadValue
from .saving import NamedOutput, SavedTuple

if TYPE_CHECKING:
    from .model import StandardizedTransformer


class Access:
    """Reads and writes of rows of the plan. A subclass says what a row is (`_read`) and what writing it does (`_write`)."""

    _model: StandardizedTransformer
    _frame: Any = None  # of the body, where that can be left in the middle
    _also: StandardizedTransformer | None = None  # another model whose attributes come here, too

    def _read(self, row: int, name: str) -> Any:
        raise NotImplementedError

    def _write(self, row: int, name: str, value: Any) -> None:
        raise NotImplementedError

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


def callers_frame() -> Any:
    """The innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") == __package__ and (outer := frame.f_back) is not None:
        frame = outer
    return frame


def place(frame: Any) -> str:
    return f"line {frame.f_lineno} of {frame.f_code.co_filename}"
