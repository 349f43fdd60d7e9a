"""What a model has by block number (``model.layers_output[i]``), and what is done with it: steering, nearest tokens."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from .errors import BadOption, BadValue
from .modules import Module
from .recording import RecordedValue

if TYPE_CHECKING:
    from .model import StandardizedTransformer

Index: TypeAlias = "int | Sequence[int] | torch.Tensor"


class LayerAccessor:
    """One value, or one module, of every block: ``accessor[i]``, ``accessor[-1]``, ``for value in accessor``.

    A value is the live tensor, read and written as at its host, inside a trace and in the order of the run:
    ``model.mlps_output[3] *= 0.5`` is ``model.layers[3].mlp.mlp_output *= 0.5``. A module can be had at any time.
    """

    def __init__(self, model: StandardizedTransformer, name: str, host: str = "", value: str = "") -> None:
        self._model, self._name, self._host, self._value = model, name, host, value

    def _module_of(self, layer: int) -> Module:
        try:
            block = self._model.layers[operator.index(layer)]
        except TypeError:
            raise BadOption(f"{self._name}[{layer!r}]: a block is named by one integer.") from None
        return getattr(block, self._host) if self._host else block

    def __getitem__(self, layer: int) -> Any:
        """The live tensor, or the module. Raises IndexError, and what the value raises: OutsideTrace, OutOfOrder."""
        module = self._module_of(layer)
        return getattr(module, self._value) if self._value else module

    def __setitem__(self, layer: int, value: torch.Tensor) -> None:
        """Puts a tensor of the same shape in the value's place. Raises BadValue where it does not fit, and as reading does."""
        if not self._value:
            raise BadOption(f"{self._name}[{layer}] is a module; assign to {self._name}_input[{layer}] or _output.")
        setattr(self._module_of(layer), self._value, value)

    __call__ = __getitem__

    def __len__(self) -> int:
        return len(self._model.layers)

    def __iter__(self) -> Iterator[Any]:
        return (self[layer] for layer in range(len(self)))

    def __repr__(self) -> str:
        inside = ".".join(part for part in (self._host, self._value) if part)
        return f"<{self._name}[i]: layers[i].{inside}, {len(self)} blocks>"


def _accessor(name: str, host: str, value: str, meaning: str) -> property:
    return property(lambda model: LayerAccessor(model, name, host, value), doc=meaning)


def layer_numbers(model: StandardizedTransformer, layers: int | Sequence[int] | None) -> list[int]:
    """Block numbers as counted from 0, in the order given; None is every block. Raises BadOption for one that is not there."""
    count = model.num_layers
    if layers is None:
        return list(range(count))
    numbers = list(layers) if isinstance(layers, (Sequence, range, torch.Tensor)) else [layers]
    try:
        numbers = [operator.index(number) for number in numbers]
    except TypeError:
        raise BadOption(f"layers={layers!r} is neither an integer, a list of integers nor None.") from None
    for number in numbers:
        if not -count <= number < count:
            raise BadOption(f"layers: there is no block {number}; the model has {count}, 0 to {count - 1}.")
    return [number % count for number in numbers]


class Accessors:
    """The part of a model that goes by block number."""

    layers_input = _accessor(
        "layers_input", "", "layer_input", "The stream entering block i [batch, seq, hidden_size]."
    )
    layers_output = _accessor(
        "layers_output", "", "layer_output", "The stream leaving block i [batch, seq, hidden_size]."
    )
    attentions = _accessor("attentions", "self_attn", "", "Block i's attention module.")
    attentions_input = _accessor(
        "attentions_input", "", "attention_norm_output", "What block i's attention reads [batch, seq, hidden_size]."
    )
    attentions_output = _accessor(
        "attentions_output", "self_attn", "attention_output", "What block i's attention adds [batch, seq, hidden_size]."
    )
    mlps = _accessor("mlps", "mlp", "", "Block i's MLP module.")
    mlps_input = _accessor("mlps_input", "", "mlp_input", "What block i's MLP reads [batch, seq, hidden_size].")
    mlps_output = _accessor("mlps_output", "mlp", "mlp_output", "What block i's MLP adds [batch, seq, hidden_size].")
    attention_probabilities = _accessor(
        "attention_probabilities", "self_attn", "attention_probabilities", "Patterns [batch, num_heads, query, key]."
    )

    @property
    def ln_final(self: StandardizedTransformer) -> Module:  # type: ignore[misc]
        """The final norm, ``model.norm``: ``.input``, ``.output``, ``.weight``."""
        return self.norm

    def steer(
        self: StandardizedTransformer,  # type: ignore[misc]
        layers: int | Sequence[int],
        steering_vector: torch.Tensor,
        factor: float = 1,
        positions: Index | None = None,
        token_positions: Index | None = None,
        batch_index: Index | None = None,
    ) -> None:
        """Adds ``factor * steering_vector`` to the stream that leaves each of `layers`, in place, inside a trace.

        Args:
            layers: block numbers, negative ones from the end; they are visited in the order of the run.
            steering_vector: [hidden_size], or what broadcasts to the part of [batch, seq, hidden_size] that is picked.
            positions: the old name of `token_positions`.
            token_positions: which positions, as they index the seq axis (padding counts); None is all.
            batch_index: which rows; None is all. With `token_positions`, too: pairs, as torch pairs two lists.

        Raises:
            BadOption: both names of the positions, or no such block.
            BadValue: the vector's last axis is not hidden_size.
            OutOfOrder: the run has passed one of the blocks.
        """
        if positions is not None:
            if token_positions is not None:
                raise BadOption("positions is the old name of token_positions: give one of them.")
            warnings.warn("steer: positions is now token_positions", DeprecationWarning, stacklevel=2)
            token_positions = positions
        if not isinstance(steering_vector, torch.Tensor):
            raise BadValue(f"steering_vector is {type(steering_vector).__name__}; it must be a tensor [hidden_size].")
        if steering_vector.ndim == 0 or steering_vector.shape[-1] != self.hidden_size:
            raise BadValue(
                f"steering_vector has the shape {list(steering_vector.shape)}; its last axis must be hidden_size, {self.hidden_size}."
            )
        every = slice(None)
        part = (every if batch_index is None else batch_index, every if token_positions is None else token_positions)
        for layer in sorted(set(layer_numbers(self, layers))):
            stream = self.layers_output[layer]
            if isinstance(stream, RecordedValue):  # what is trained is multiplied in each run
                stream[part].apply(_steering(steering_vector, factor))
            else:
                stream[part] += factor * steering_vector.to(stream.device)

    def get_topk_closest_tokens(
        self: StandardizedTransformer,  # type: ignore[misc]
        hidden_state: torch.Tensor,
        k: int = 5,
    ) -> dict[str, float] | list[dict[str, float]]:
        """The `k` tokens that the model's own readout finds likeliest for a hidden state, with their probabilities, best first.

        Args:
            hidden_state: [hidden_size], or [rows, hidden_size] for a list of answers.

        Raises:
            BadValue: another shape.
            BadOption: k is not between 1 and vocab_size.
        """
        if hidden_state.ndim not in (1, 2) or hidden_state.shape[-1] != self.hidden_size:
            raise BadValue(
                f"hidden_state has the shape {list(hidden_state.shape)}; expected [{self.hidden_size}] or [rows, {self.hidden_size}]."
            )
        check_k(k, self.vocab_size)
        probs = self.project_on_vocab(hidden_state).detach().float().softmax(-1).cpu()
        best = probs.topk(k)
        if hidden_state.ndim == 1:
            return self.probs_to_dict(best.indices, best.values)
        return [self.probs_to_dict(*row) for row in zip(best.indices, best.values, strict=True)]

    def probs_to_dict(
        self: StandardizedTransformer,  # type: ignore[misc]
        tokens: torch.Tensor,
        probs: torch.Tensor,
    ) -> dict[str, float]:
        """The vocabulary's spelling of each id [n], with its probability [n]."""
        names = token_names(self.tokenizer, tokens.tolist())
        return dict(zip(names, probs.tolist(), strict=True))


def _steering(vector: torch.Tensor, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def steer(stream: torch.Tensor) -> torch.Tensor:
        return stream + factor * vector.to(stream.device)

    return steer


def check_k(k: int, size: int) -> None:
    if not 1 <= k <= size:
        raise BadOption(f"k={k} is not between 1 and the vocabulary's {size}.")


def token_names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The vocabulary's spelling of each id; ``id 7`` for rows of the head that no token has, and without a tokenizer."""

    def name(token_id: int) -> str:
        try:
            found = None if tokenizer is None else tokenizer.convert_ids_to_tokens(int(token_id))
        except (KeyError, IndexError, OverflowError):
            found = None
        return f"id {int(token_id)}" if found is None else found

    return [name(token_id) for token_id in ids]
