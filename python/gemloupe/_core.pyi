from collections.abc import Callable
from typing import Any

import torch

version: str
torch_version: str

def set_error_classes(by_slug: dict[str, type[BaseException]]) -> None: ...
def prompt_of(rows: list[list[int]], pad: int) -> Prompt: ...
def render_chat(text: str, messages: list[Any], options: dict[str, Any]) -> str: ...
def chat_template(model: Model) -> str | None: ...
def released() -> list[tuple[str, list[str], dict[str, Any]]]: ...
def printout(model: Model) -> str: ...
def support(model: Model) -> Document: ...

class Row:
    name: str
    meaning: str
    read_at: str
    layer: int
    position: int
    sizes: list[int]
    is_value: bool
    value_name: str
    layout: str
    axes: list[str]

class Plan:
    family: str
    class_name: str
    identity: str
    layer_kinds: list[str]
    rows: list[Row]
    row_index: dict[str, int]
    absences: dict[str, str]
    sizes: dict[str, int]
    layer_sizes: list[dict[str, int]]
    modules: list[dict[str, Any]]
    config: dict[str, Any]
    notes: list[tuple[str, str]]
    warnings: list[str]
    vision: dict[str, Any]
    weights: list[tuple[str, list[int], bool, str | None]]
    def find_row(self, name: str) -> int: ...
    def find_module(self, path: str) -> int: ...

class Document:
    title: str
    def to_text(self, width: int = 100) -> str: ...
    def to_html(self) -> str: ...
    def to_json(self) -> Any: ...

class LoadOptions:
    dtype: str | None
    device: str
    attn_implementation: str
    revision: str | None
    final_logit_softcapping: str
    threads: int | None
    ignore_config_keys: list[str]

class Prompt:
    ids: torch.Tensor
    attention_mask: torch.Tensor | None
    position_ids: torch.Tensor | None
    def __init__(
        self, ids: torch.Tensor, attention_mask: torch.Tensor | None = None, position_ids: torch.Tensor | None = None
    ) -> None: ...

class Trace:
    finished: bool
    input_size: tuple[int, int]
    def __init__(self, model: Model, prompt: Prompt) -> None: ...
    def read(self, row: int) -> torch.Tensor: ...
    def write(self, row: int, tensor: torch.Tensor) -> None: ...
    def rows_are_lazy(self, row: int) -> bool: ...
    def head_input(self, row: int) -> torch.Tensor | None: ...
    def apply_head(self, row: int, rows: torch.Tensor) -> torch.Tensor: ...
    def at(self, where: str) -> None: ...
    def save(self, tensor: torch.Tensor, held: bool, name: str) -> torch.Tensor: ...
    def end(self) -> str | None: ...
    def finish(self) -> None: ...

class Tokenizer:
    size: int
    end_id: int
    special: dict[str, int | None]
    prefix: list[int]
    suffix: list[int]
    added_tokens: list[tuple[int, str, bool]]
    @staticmethod
    def of(model: Model) -> Tokenizer: ...
    def encode(self, text: str, add_special_tokens: bool) -> tuple[list[int], list[tuple[int, int]]]: ...
    def decode(self, ids: list[int], skip_special_tokens: bool) -> str: ...
    def id_to_token(self, id: int) -> str | None: ...
    def token_to_id(self, token: str) -> int | None: ...
    def is_special(self, id: int) -> bool: ...
    def special_token_texts(self) -> dict[str, Any]: ...

class Model:
    plan: Plan
    path: str
    attn_implementation: str
    generation_config: Any
    digest: str
    end_tokens: list[int]
    pad_token: int
    @staticmethod
    def load(path_or_id: str, options: LoadOptions) -> Model: ...
    @staticmethod
    def without_weights(path_or_name: str, options: LoadOptions) -> Model: ...
    @staticmethod
    def of_config(config: dict[str, Any], where: str, options: LoadOptions) -> Model: ...
    has_weights: bool
    def weight(self, id: int) -> torch.Tensor: ...
    def prompt(self, text: str) -> Prompt: ...
    def project_on_vocab(self, hidden: torch.Tensor) -> torch.Tensor: ...
    def generate(
        self,
        prompt: Prompt,
        max_new_tokens: int,
        end_tokens: list[int],
        on_step: Callable[[list[int]], bool | None] | None,
    ) -> torch.Tensor: ...
