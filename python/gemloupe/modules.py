"""The native modules of a model, as attributes: ``model.layers[5].self_attn.o_proj.input``, ``.output``, ``._module``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .errors import Absent, BadValue, CannotCall, NotInThisRun, UnknownName
from .saving import NamedOutput, SavedDict, SavedTuple

if TYPE_CHECKING:
    from .model import StandardizedTransformer


class NativeModule:
    """What ``._module`` gives: the reference's module's plain attributes (``sliding_window``, ``eps``, …) and its parameters.

    A parameter is the weight the model computes with: an edit in place counts at once, reaches a tied head, and never the file.
    """

    def __init__(self, model: StandardizedTransformer, info: dict) -> None:
        self._model, self._info = model, info

    def __getattr__(self, name: str) -> Any:
        if "_info" not in self.__dict__:  # being copied or unpickled
            raise AttributeError(name)
        info = self.__dict__["_info"]
        for weight, slot in info["weights"]:
            if weight == name:
                return self._model._core.weight(slot)
        if name in info["attributes"]:
            return info["attributes"][name]
        for child in info["children"]:
            if self._model._infos[child]["name"] == name:
                return NativeModule(self._model, self._model._infos[child])
        known = [w for w, _ in info["weights"]] + list(info["attributes"])
        raise UnknownName(
            f"{info['class_name']} has no '{name}' here; it has {', '.join(known) or 'nothing of its own'}"
        )

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
        for weight, slot in self._info["weights"]:
            yield prefix + weight, self._model._core.weight(slot)
        for child in self._info["children"]:
            info = self._model._infos[child]
            yield from NativeModule(self._model, info).named_parameters(f"{prefix}{info['name']}.")

    def parameters(self) -> Iterator[torch.Tensor]:
        return (tensor for _, tensor in self.named_parameters())

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(self.named_parameters())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(w for w, _ in self._info["weights"]), *self._info["attributes"]]

    def __repr__(self) -> str:
        return f"<{self._info['class_name']} '{self._info['path']}'>"


#: What people from TransformerLens and nnsight ask a model for.
ELSEWHERE = frozenset(
    "run_with_cache run_with_hooks add_hook add_perma_hook reset_hooks hook_dict blocks cfg to_tokens to_string to_str_tokens "
    "to_single_token W_E W_U W_Q W_K W_V W_O ln_final_hook unembed session all save_grad source".split()
)


def _assembled(part: Any, leaves: Iterator[torch.Tensor | None]) -> Any:
    """A part of a plan with its leaves in it."""
    if part is None:
        return None
    if isinstance(part, int):
        return next(leaves)
    _, members, names = part
    values = [_assembled(member, leaves) for member in members]
    return NamedOutput.of(names, values) if names else SavedTuple(values)


class _Attribute:
    """A value or a port where Python finds it first: through ``__getattr__``, which is called when all else has failed, an access
    costs three times as much. A module that has none of that name goes on there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        if module is None:
            return self
        try:
            if (row := module._rows.get(self._name)) is not None:
                return module._model._tracer(row[1])._read(row[0], row[1])
            if (part := module._parts.get(self._name)) is not None:
                return module._model._tracer(part[1])._read_part(part[0], part[1])
        except AttributeError as error:  # ours, or out of an edit: Python would ask __getattr__, and forget it
            module.__dict__["_raised"] = error
            raise
        raise AttributeError(self._name)


class Module:
    """A native module of the reference, with its ports and the standard values that lie at it.

    Reading ``.input``, ``.output`` or a value inside a trace runs the model up to it and gives the live tensor; writing into that
    tensor, or assigning to the attribute, edits the run.
    """

    def __init__(self, model: StandardizedTransformer, info: dict, path: str) -> None:
        own = self.__dict__
        own["_model"], own["_info"], own["_path"] = model, info, path
        own["_rows"] = {}  # value name -> (row, full name)
        own["_parts"] = {}  # "input", "output" -> (part, full name)
        if info["has_result"]:
            own["_parts"]["output"] = (info["result"], self._name("output"))
        if info["arguments"]:
            own["_parts"]["input"] = (info["arguments"][0][1], self._name("input"))

    def _name(self, attribute: str) -> str:
        return f"{self._path}.{attribute}" if self._path else attribute

    @property
    def _module(self) -> NativeModule:
        return NativeModule(self._model, self._info)

    # ---------------------------------------------------------------------------------------------------- calling

    def __call__(self, value: torch.Tensor, *, position_ids: torch.Tensor | None = None) -> Any:
        """What the module returns for `value`, beside any run: no cursor moves, nothing is recorded, edits do not count.

        Attention and blocks see what a causal run of `value`'s tokens [batch, seq, hidden_size] sees, at `position_ids`
        [seq] or [batch, seq] (0 and up if not given).

        Raises:
            CannotCall: where a tensor alone is not enough. BadValue: it does not fit.
        """
        if not self._info["has_result"] or not self._info["arguments"]:
            raise CannotCall(f"'{self._path}' cannot be called: {self._info['no_ports'] or 'it takes no tensor'}.")
        if not isinstance(value, torch.Tensor):
            raise BadValue(f"'{self._path}' is called with {type(value).__name__}; it takes a tensor.")
        if position_ids is not None and not isinstance(position_ids, torch.Tensor):
            raise BadValue(f"'{self._path}': position_ids is {type(position_ids).__name__}; it must be a tensor.")
        leaves = iter(self._model._core.call(self._info["id"], value, position_ids))
        return _assembled(self._info["result"], leaves)

    def skip(self, value: Any) -> None:
        """Inside a trace: the module does not run, and returns `value` (of a tuple, its first member).

        Raises:
            CannotSkip: something behind it reads what is made inside it. OutOfOrder: the run is past its beginning.
        """
        if value is None:
            raise BadValue(f"'{self._name('output')}' is replaced by None; it must be a tensor.")
        self._model._tracer(self._name("skip"))._skip(self._info["id"], self._info["id"], self._name("output"), value)

    # ---------------------------------------------------------------------------------------------------- reading

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_info" not in own:  # being copied or unpickled
            raise AttributeError(name)
        if (error := own.pop("_raised", None)) is not None:
            raise error
        if name == "inputs" and own["_info"]["arguments"]:
            return self._read_inputs()
        for weight, slot in own["_info"]["weights"]:
            if weight == name:  # a parameter is there without a run: model.embed_tokens.weight
                return own["_model"]._core.weight(slot)
        raise self._unknown(name)

    def _weight_rows(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """Some rows of a matrix, without the rest of it in the model's dtype."""
        return self._model._core.weight_rows(dict(self._info["weights"])[name], ids)

    def _read_inputs(self) -> SavedTuple:
        tracer, name = self._model._tracer(self._name("inputs")), self._name("inputs")
        values = [(keyword, tracer._read_part(part, name)) for keyword, part in self._info["arguments"]]
        positional = SavedTuple(value for keyword, value in values if not keyword)
        return SavedTuple((positional, SavedDict((keyword, value) for keyword, value in values if keyword)))

    # ---------------------------------------------------------------------------------------------------- writing

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if (row := own["_rows"].get(name)) is not None:
            own["_model"]._tracer(row[1])._write(*row, value)
        elif (part := own["_parts"].get(name)) is not None:
            own["_model"]._tracer(part[1])._write_part(*part, value)
        elif name == "inputs" and own["_info"]["arguments"]:
            self._write_inputs(value)
        elif name.startswith("_"):
            own[name] = value
        elif name in dict(own["_info"]["weights"]):
            self._write_weight(name, dict(own["_info"]["weights"])[name], value)
        else:
            raise self._unknown(name)

    def _write_weight(self, name: str, slot: int, value: Any) -> None:
        """A parameter is written in place: a tied head and every run from now on see it, the file never does."""
        weight = self._model._core.weight(slot)
        if isinstance(value, torch.Tensor) and value.data_ptr() == weight.data_ptr():
            return  # `weight *= 2` has written already
        if not isinstance(value, torch.Tensor) or value.shape != weight.shape:
            raise BadValue(
                f"'{self._name(name)}' must be a tensor of the shape {list(weight.shape)}; write a part by `{name}[...] =`."
            )
        with torch.no_grad():
            weight.copy_(value)

    def _write_inputs(self, value: Any) -> None:
        name = self._name("inputs")
        if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)):
            raise TypeError(f"'{name}' is (positional arguments, keyword arguments), as reading it gives")
        tracer, positional = self._model._tracer(name), list(value[0])
        for keyword, part in self._info["arguments"]:
            new = value[1].get(keyword) if keyword else (positional.pop(0) if positional else None)
            if new is not None:
                tracer._write_part(part, f"{name}.{keyword}" if keyword else name, new)

    # ---------------------------------------------------------------------------------------------------- otherwise

    input, output = _Attribute("input"), _Attribute("output")

    def _unknown(self, name: str) -> Exception:
        full = self._name(name)
        if name.startswith("__"):
            return AttributeError(name)
        if name in ELSEWHERE:
            return UnknownName(f"'{full}' is another library's name: docs/coming-from.md says what it is called here.")
        try:
            self._model._core.plan.find_row(full)
        except (UnknownName, Absent, NotInThisRun) as error:
            return error
        return UnknownName(f"'{full}' is no attribute")

    def __dir__(self) -> list[str]:
        others = {name for name, found in vars(Module).items() if isinstance(found, _Attribute)}
        return [*(set(super().__dir__()) - others), *self.__dict__, *self._rows, *self._parts]

    def __repr__(self) -> str:
        return f"<{self._info['class_name']} '{self._path}'>"


class ModuleList(Module):
    """The blocks: indexable, iterable."""

    def _blocks(self) -> list[Module]:
        return self.__dict__["_members"]

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._blocks()[index]
        except IndexError:
            raise IndexError(
                f"there is no block {index}: the model has {len(self)} blocks, 0 to {len(self) - 1}"
            ) from None

    def __len__(self) -> int:
        return len(self._blocks())

    def __iter__(self) -> Iterator[Module]:
        return iter(self._blocks())


def build_tree(root: Module) -> None:
    """Attaches a Module for every module of the plan below `root`, and every standard value to its host."""
    model = root._model
    made: dict[int, Module] = {0: root}
    for index, info in enumerate(model._infos):
        if index == 0:
            continue
        made[index] = (ModuleList if info["class_name"] == "ModuleList" else Module)(model, info, info["standard"])
        made[info["parent"]].__dict__[info["name"]] = made[index]
    for index, module in made.items():
        if isinstance(module, ModuleList):
            module.__dict__["_members"] = [made[child] for child in model._infos[index]["children"]]
    model.__dict__["_all_modules"] = [module for index, module in made.items() if index]
    by_path = {module._path: module for module in made.values()}
    by_path[""] = root
    for (
        path,
        module,
    ) in by_path.items():  # model.layers beside model.model.layers, vision.layers beside vision.encoder.layers
        host, _, name = path.rpartition(".")
        if path and path != module._info["path"]:
            by_path[host].__dict__.setdefault(name, module)
    for row_id, row in enumerate(model._row_table):
        if row.is_value:
            host, _, name = row.name.rpartition(".")
            by_path[host]._rows[name] = (row_id, row.name)
            if not hasattr(Module, name):
                setattr(Module, name, _Attribute(name))
    for layer, sizes in enumerate(model._core.plan.layer_sizes):
        for part in ("", ".self_attn", ".mlp"):
            if host := by_path.get(f"layers.{layer}{part}"):
                host.__dict__.update(sizes)
    if model._core.plan.vision:
        by_path["vision"].__dict__.update(model._core.plan.vision)
