"""``tracer.cache(...)``: values and ports collected by name while a run goes by."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .errors import BadOption, CannotWrite, UnknownName

if TYPE_CHECKING:
    from .tracing import Tracer


class Cache(Mapping[str, torch.Tensor]):
    """What a run has collected, by name: ``cache["layers.3.layer_output"]``, or by the native path."""

    def __init__(self, tracer: Tracer, device: Any, dtype: torch.dtype | None) -> None:
        self._model = tracer._model
        try:
            self._device = None if device is None else torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise BadOption(f"device={device!r}: {str(error).splitlines()[0]}") from None
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype.removeprefix("torch."), dtype)
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise BadOption(f"dtype={dtype!r} is no dtype.")
        self._dtype = dtype
        self._tensors: dict[str, torch.Tensor] = {}

    def _take(self, name: str, value: torch.Tensor | None) -> None:
        if value is None:  # what the reference leaves out as well: the pattern of fused attention
            return
        kept = value.detach().to(device=self._device, dtype=self._dtype if value.is_floating_point() else None)
        self._tensors[name] = kept.clone() if kept.data_ptr() == value.data_ptr() else kept

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self._tensors:
            return self._tensors[name]
        row = self._model._row(name)  # in the other spelling, or an error with the nearest names
        found = self._model._row_table[row].name
        if found not in self._tensors:
            has = ", ".join(self._tensors) or "nothing yet: it fills as the run goes by, to the end of the body"
            raise UnknownName(f"'{name}' was not collected; the cache has {has}")
        return self._tensors[found]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def to_safetensors(self, path: str | Path) -> None:
        """One file with every tensor under its name; nothing is left half-written."""
        from safetensors.torch import save_file

        target = Path(path)
        scratch = target.with_name(f".{target.name}.part")
        try:
            save_file({name: tensor.contiguous() for name, tensor in self._tensors.items()}, scratch)
            scratch.replace(target)
        except Exception as error:
            raise CannotWrite(f"{target}: {error}") from None
        finally:
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"Cache({', '.join(f'{name} {list(t.shape)}' for name, t in self._tensors.items())})"


def names_of(model: Any, modules: Any, values: Any, include_inputs: bool) -> list[str]:
    """The rows that are meant, in the order of the run. Without either, every block's output."""
    if modules is None and values is None:
        values = ["layers.*.layer_output"]
    rows: set[int] = set()
    for pattern in _list(values):
        rows |= {model._row(name) for name in _matching(model.value_names(), pattern)}
    for pattern in _list(modules):
        for module in _modules(model, pattern):
            for port in ("output", "input") if include_inputs else ("output",):
                rows |= set(_leaves(module, port))
    return [model._row_table[row].name for row in sorted(rows, key=lambda row: model._row_table[row].position)]


def _modules(model: Any, pattern: Any) -> list[Any]:
    """A module, or those that a name or a glob of names means, in either spelling."""
    if hasattr(pattern, "_path"):
        return [pattern]
    if not isinstance(pattern, str):
        raise BadOption(f"modules={pattern!r}: a module, its path, or a glob of paths.")
    found = [
        m for m in model._modules() if {m._path, m._info["path"]} & set(_globbed([m._path, m._info["path"]], pattern))
    ]
    if not found:
        model._core.plan.find_module(pattern)  # with the nearest names
    return [module for module in found if module._parts] or found


def _leaves(module: Any, port: str) -> Iterator[int]:
    """The rows of a port: of a tuple those of its members."""
    if port not in module._parts:
        raise UnknownName(f"'{module._name(port)}': {module._info['no_ports'] or 'it is called with no tensor'}")

    def walk(part: Any) -> Iterator[int]:
        if isinstance(part, int):
            yield part
        elif part is not None:
            for member in part[1]:
                yield from walk(member)

    return walk(module._parts[port][0])


def _list(patterns: Any) -> Iterable[Any]:
    if patterns is None:
        return []
    if isinstance(patterns, str) or hasattr(patterns, "_path") and not hasattr(patterns, "__len__"):
        return [patterns]
    if not isinstance(patterns, Iterable):
        raise BadOption(f"{patterns!r} is neither a name nor a list of names.")
    return list(patterns)


def _matching(names: list[str], pattern: str) -> list[str]:
    if not isinstance(pattern, str):
        raise BadOption(f"values={pattern!r}: a value's name or a glob of names.")
    if not any(sign in pattern for sign in "*?["):
        return [pattern]
    found = _globbed(names, pattern.removeprefix("model."))
    if not found:
        raise UnknownName(f"no value matches '{pattern}'; model.value_names() lists them")
    return found


def _globbed(names: Iterable[str], pattern: str) -> list[str]:
    """As on the command line: * is any characters but a dot, ** any at all."""
    parts = re.split(r"(\*\*|\*|\?|\[[^\]]*\])", pattern)
    meant = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    try:
        glob = re.compile("".join(meant.get(part, part if part.startswith("[") else re.escape(part)) for part in parts))
    except re.error as error:
        raise BadOption(f"'{pattern}' is no glob of names: {error}") from None
    return [name for name in names if glob.fullmatch(name)]
