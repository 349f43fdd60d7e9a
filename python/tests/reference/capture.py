"""transformers on one checkpoint, in this process, with every value of a forward pass captured by gemloupe's names.

    reference = Reference(folder)
    captured = reference.capture(ids)                  # {name: tensor}, in the order in which the values come to be
    captured["layers.3.mlp.mlp_output"]                # a standard value
    captured["layers.3.self_attn.inputs"]              # a module's port: (args, kwargs), the cache excepted
    reference.capture(ids, edits={"layers.3.layer_output": lambda t: t * 2})["logits"]
    reference.capture(ids, skip=[3, 4])["logits"]      # without these blocks: each hands on what enters it

An edit returns the replacement of what it is given, or None after writing in place. A standard value is the tensor
itself, so both ways reach whatever reads it later; replacing a module's input reaches that module alone.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import torch
import transformers
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# Which module's input or output a standard value is, by paths from the root and from a block; Gemma 1 has no norm after a
# sublayer, and gives the name of one to the norm before the MLP.
ROOT_OUTPUTS = {"embed_tokens": "token_embeddings", "norm": "final_norm_output", "lm_head": "lm_head_output"}
BLOCK_INPUTS = {
    "": "layer_input",
    "self_attn.o_proj": "self_attn.attention_premix",
    "pre_feedforward_layernorm": "layer_mid",
    "mlp": "mlp_input",
    "mlp.down_proj": "mlp.mlp_neurons",
}
BLOCK_OUTPUTS = {
    "input_layernorm": "attention_norm_output",
    "post_attention_layernorm": "self_attn.attention_output",
    "pre_feedforward_layernorm": "mlp_norm_output",
    "mlp.act_fn": "mlp.mlp_activation",
    "post_feedforward_layernorm": "mlp.mlp_output",
    "post_per_layer_input_norm": "per_layer_output",
    "router.proj": "mlp.router_logits",
    "experts": "mlp.routed_output",
    "": "layer_output",
}
PRE_NORM_INPUTS = {key: value for key, value in BLOCK_INPUTS.items() if key != "pre_feedforward_layernorm"} | {
    "post_attention_layernorm": "layer_mid"
}
PRE_NORM_OUTPUTS = {
    "input_layernorm": "attention_norm_output",
    "self_attn": "self_attn.attention_output",
    "post_attention_layernorm": "mlp_norm_output",
    "mlp.act_fn": "mlp.mlp_activation",
    "mlp": "mlp.mlp_output",
    "": "layer_output",
}
INTERIOR = ("attention_scores", "attention_probabilities")  # of the attention function: captured under eager only
HEADS_FIRST = tuple(f"attention_{name}" for name in ("queries", "keys", "values", "scores", "probabilities"))
HEADS_FIRST += tuple(f"{norm}.{port}" for norm in ("q_norm", "k_norm") for port in ("input", "output"))
READ_ONLY = ("next_token_probs", "attention_mask", "vision.image_token_mask")
CACHE = ("cache", "use_cache", "shared_kv_states", "is_causal", "labels")
OUTSIDE = ("", "layers", "rotary_emb")  # of the text model: the wrapping of the blocks, not looked at

Edits = Mapping[str, Callable[[torch.Tensor], torch.Tensor | None]]
NONE: Edits = MappingProxyType({})


def snapshot(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, tuple):
        return tuple(snapshot(item) for item in value)
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items()}
    return value


def positions(mask: torch.Tensor) -> torch.Tensor:
    """A token's position is the number of tokens before it in its own row."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


class Reference:
    def __init__(self, folder: Path, implementation: str | None = "eager", dtype: torch.dtype | None = None):
        options = {} if dtype is None else {"dtype": dtype}
        kind = transformers.AutoConfig.from_pretrained(folder).model_type
        auto = transformers.AutoModelForImageTextToText if kind == "paligemma" else transformers.AutoModelForCausalLM
        self.model = auto.from_pretrained(folder, attn_implementation=implementation, **options).eval()
        self.config = self.model.config
        self.text_config = self.config.get_text_config()
        self.is_wrapper = self.text_config is not self.config
        self.text_path = "model.language_model." if self.is_wrapper else "model."
        self.first_position = 1 if kind == "paligemma" else 0

    def inputs(self, ids: torch.Tensor, mask: torch.Tensor | None) -> dict:
        mask = torch.ones_like(ids) if mask is None else mask.clone()  # an edit of it is not the caller's
        padded = {} if mask.all() else {"position_ids": positions(mask) + self.first_position}
        return {"input_ids": ids, "attention_mask": mask, **padded}

    def logits(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The bare forward pass: nothing hooked, nothing captured."""
        with torch.no_grad():
            return self.model(**self.inputs(ids, mask), use_cache=False).logits

    def capture(
        self, ids: torch.Tensor, mask: torch.Tensor | None = None, edits: Edits = NONE, skip: Iterable[int] = ()
    ) -> dict:
        recorder = _Recorder(edits, ids.shape, self.model.dtype, self.config._attn_implementation == "eager")
        inputs = {name: recorder.value(name, tensor) for name, tensor in self.inputs(ids.clone(), mask).items()}
        recorder.values.pop("position_ids", None)
        if getattr(self.config, "vision_config", None) is not None:
            recorder.value("vision.image_token_mask", ids == self.config.image_token_id)
        modeling = sys.modules[type(self.model.get_submodule(self.text_path[:-1])).__module__]
        with torch.no_grad(), self._hooked(recorder), self._skipped(skip), _interface(recorder, modeling):
            logits = self.model(**inputs, use_cache=False).logits
        recorder.value("logits", logits)
        recorder.value("next_token_probs", logits[:, -1].float().softmax(-1))
        if recorder.edits:
            raise KeyError(f"never reached: {sorted(recorder.edits)}")
        return recorder.values

    def block(self, index: int, layer_input: torch.Tensor, mask: torch.Tensor | None = None) -> dict:
        """The values of one block fed with `layer_input`, so that what an earlier block rounds does not add up."""
        ids = torch.zeros(layer_input.shape[:2], dtype=torch.long)
        values = self.capture(ids, mask, {f"layers.{index}.layer_input": lambda _: layer_input})
        return {name: value for name, value in values.items() if name.startswith(f"layers.{index}.")}

    @contextlib.contextmanager
    def _hooked(self, recorder):
        handles = []
        for path, module in self.model.named_modules():
            if path != "lm_head" and not path.startswith(self.text_path):
                continue
            path = path.removeprefix(self.text_path)
            if path in OUTSIDE:
                continue
            sandwich = self.text_config.model_type != "gemma"
            names = _standard_values(path, sandwich)
            head_dim = None
            if path.endswith(".o_proj"):
                head_dim = self.model.get_submodule(f"{self.text_path}{path.rpartition('.')[0]}").head_dim
            before, after = recorder.hooks(path, *names, head_dim)
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after))
            if getattr(self.text_config, "enable_moe_block", False) and path.endswith((".mlp", ".experts")):
                handles += recorder.mixture_hooks(path, module)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextlib.contextmanager
    def _skipped(self, blocks: Iterable[int]):
        layers = [self.model.get_submodule(f"{self.text_path}layers.{block}") for block in blocks]
        for layer in layers:
            layer.forward = lambda hidden_states, *args, **kwargs: hidden_states
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward


def _standard_values(path: str, sandwich: bool) -> tuple[str | None, str | None]:
    if not path.startswith("layers."):
        return None, ROOT_OUTPUTS.get(path)
    _, index, *rest = path.split(".", 2)
    inside = rest[0] if rest else ""
    read = (BLOCK_INPUTS if sandwich else PRE_NORM_INPUTS).get(inside)
    written = (BLOCK_OUTPUTS if sandwich else PRE_NORM_OUTPUTS).get(inside)
    return (read and f"layers.{index}.{read}"), (written and f"layers.{index}.{written}")


class _Recorder:
    def __init__(self, edits: Edits, shape: torch.Size, dtype: torch.dtype, eager: bool):
        self.edits, self.values, self.shape, self.dtype, self.eager = dict(edits), {}, shape, dtype, eager

    def value(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A standard value: what replaces it is copied into it, and so reaches every reader."""
        if edit := self.edits.pop(name, None):
            new = edit(tensor)
            if new is not None:
                tensor.copy_(new)
        self.values[name] = snapshot(tensor)
        return tensor

    def port(self, name: str, value):
        """A module's input or output: what replaces it is handed on in its place."""
        if edit := self.edits.pop(name, None):
            new = edit(value)
            value = value if new is None else new
        self.values[name] = snapshot(value)
        return value

    def hooks(self, path: str, read: str | None, written: str | None, head_dim: int):
        def before(module, args, kwargs):
            key = 0 if args else next(iter(kwargs))
            first = args[0] if args else kwargs[key]
            if read:
                heads = read.endswith("attention_premix")
                self.value(read, first.unflatten(-1, (-1, head_dim)) if heads else first)
            first = self.port(f"{path}.input", first)
            args, kwargs = ((first, *args[1:]), kwargs) if args else (args, {**kwargs, key: first})
            cache = {name: value for name, value in kwargs.items() if name in CACHE}
            rest = {name: value for name, value in kwargs.items() if name not in CACHE}
            # Gemma 4 leaves out a mask that opens all; under sdpa none is one that the kernel makes itself.
            if self.eager and "attention_mask" in rest and rest["attention_mask"] is None:
                length = self.shape[-1]
                rest["attention_mask"] = torch.zeros(self.shape[0], 1, length, length, dtype=self.dtype)
            args, rest = self.port(f"{path}.inputs", (args, rest))
            return args, {**rest, **cache}

        def after(module, args, output):
            output = self.port(f"{path}.output", output)
            if written:
                value = output[0] if isinstance(output, tuple) else output
                self.value(written, self.unflatten(value) if value.dim() == 2 else value)
            return output

        return before, after

    def unflatten(self, rows: torch.Tensor) -> torch.Tensor:
        """Gemma 4 calls router and experts with [batch x seq, ...]; the values keep both axes."""
        return rows.view(*self.shape, *rows.shape[1:])

    def mixture_hooks(self, path: str, module) -> list:
        where = path.rpartition(".")[0] + ".mlp"
        if path.endswith(".mlp"):
            return [
                module.register_forward_hook(
                    lambda module, args, output: self.value(f"{where}.shared_expert_output", output)
                )
            ]
        inside = _Slots(self, where)

        def before(module, args):
            self.value(f"{where}.expert_weights", self.unflatten(args[2]))
            self.value(f"{where}.expert_indices", self.unflatten(args[1]))
            inside.__enter__()

        def after(module, args, output):
            inside.__exit__(None, None, None)

        return [module.register_forward_pre_hook(before), module.register_forward_hook(after, prepend=True)]


# ------------------------------------------------------------------------------------------------ attention


@contextlib.contextmanager
def _interface(recorder: _Recorder, modeling):
    """Queries, keys, values and head outputs where the attention function is called; scores and pattern inside it."""

    def watched(function):
        def attention(module, queries, keys, values, mask, **options):
            where = f"layers.{module.layer_idx}.self_attn"
            if hasattr(
                module, "is_kv_shared_layer"
            ):  # the pages' private copies, where the reference shares one tensor
                keys, values = keys.clone(), values.clone()
            for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
                recorder.value(f"{where}.attention_{name}", tensor)
            with _Interior(recorder, where):
                output, weights = function(module, queries, keys, values, mask, **options)
            return recorder.value(f"{where}.attention_head_outputs", output), weights

        return attention

    eager, sdpa = modeling.eager_attention_forward, ALL_ATTENTION_FUNCTIONS["sdpa"]
    modeling.eager_attention_forward = watched(eager)
    ALL_ATTENTION_FUNCTIONS["sdpa"] = watched(sdpa)
    try:
        yield
    finally:
        modeling.eager_attention_forward = eager
        ALL_ATTENTION_FUNCTIONS["sdpa"] = sdpa


class _Interior(TorchFunctionMode):
    def __init__(self, recorder, where):
        super().__init__()
        self.recorder, self.where = recorder, where

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is functional.softmax:
            self.recorder.value(f"{self.where}.attention_scores", args[0])
        output = function(*args, **(kwargs or {}))
        if function is functional.dropout:
            self.recorder.value(f"{self.where}.attention_probabilities", output)
        return output


class _Slots(TorchFunctionMode):
    """Each slot's weighted output, where the experts sum them up."""

    def __init__(self, recorder, where):
        super().__init__()
        self.recorder, self.where = recorder, where

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.sum and args[0].dim() == 3:
            self.recorder.value(f"{self.where}.expert_outputs", self.recorder.unflatten(args[0]))
        return function(*args, **(kwargs or {}))


# ------------------------------------------------------------------------------------------------ padding


def real_rows(name: str, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The rows of a value that belong to tokens: what a padding position computes means nothing."""
    if name.endswith(HEADS_FIRST):
        tensor = tensor.transpose(1, 2)
    return tensor[mask.bool()] if tensor.shape[:2] == mask.shape else tensor
