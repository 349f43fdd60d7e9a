"""``tracer.cache(...)``: values and ports collected by name while a run goes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .errors import BadOption, UnknownName

if TYPE_CHECKING:
    from .tracing import Tracer


class Cache(Mapping[str, torch.Tensor]):
    """What a run has collected, by name: ``cache["layers.3.layer_output"]``, or by the native path."""

    def __init__(self, tracer: Tracer, device: Any, dtype: torch.dtype | None) -> None:
        self._model = tracer._model
        self._device, self._dtype = device, dtype
        self._tensors: dict[str, torch.Tensor] = {}

    def _take(self, name: str, value: torch.Tensor) -> None:
        kept = value.detach().to(device=self._device, dtype=self._dtype if value.is_floating_point() else None)
        self._tensors[name] = kept.clone() if kept.data_ptr() == value.data_ptr() else kept

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self._tensors:
            return self._tensors[name]
        row = self._model._row(name)  # in the other spelling, or an error with the nearest names
        found = self._model._row_table[row].name
        if found not in self._tensors:
            raise UnknownName(f"'{name}' was not collected; the cache has {', '.join(self._tensors) or 'nothing'}")
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
        finally:
            scratch.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"Cache({', '.join(f'{name} {list(t.shape)}' for name, t in self._tensors.items())})"


def names_of(model: Any, modules: Any, values: Any, include_inputs: bool) -> list[str]:
    """The rows that are meant, in the order of the run. Without either, every block's output."""
    if modules is None and values is None:
        values = ["layers.*.layer_output"]
    wanted: list[str] = []
    for pattern in _list(values):
        wanted += _matching(model.value_names(), pattern)
    for pattern in _list(modules):
        path = getattr(pattern, "_path", pattern)
        found = [module._path for module in model._modules() if fnmatchcase(module._path, path)]
        if not found:
            found = [path]
        for name in found:
            wanted.append(f"{name}.output")
            if include_inputs:
                wanted.append(f"{name}.input")
    rows = {model._row(name) for name in wanted}
    return [model._row_table[row].name for row in sorted(rows, key=lambda row: model._row_table[row].position)]


def _list(patterns: Any) -> Iterable[Any]:
    if patterns is None:
        return []
    return [patterns] if isinstance(patterns, str) or hasattr(patterns, "_path") else list(patterns)


def _matching(names: list[str], pattern: str) -> list[str]:
    if not isinstance(pattern, str):
        raise BadOption(f"values={pattern!r}: a value's name or a glob of names.")
    if not any(sign in pattern for sign in "*?["):
        return [pattern]
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UnknownName(f"no value matches '{pattern}'; model.value_names() lists them")
    return found
