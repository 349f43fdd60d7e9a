"""The attention pattern of a prompt as one HTML page: no network, no other file."""

from __future__ import annotations

import base64
import html
import importlib.resources
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .accessors import layer_numbers, token_names
from .errors import BadPrompt, CannotWrite, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model import PromptLike, StandardizedTransformer

_STEPS = 65535  # a probability on the page is a multiple of 1/65535


@dataclass(frozen=True)
class AttentionPattern:
    """The patterns of one prompt. A notebook shows the page, ``.save(path)`` writes it.

    Attributes:
        tokens: the vocabulary's spelling of each token, [seq].
        layers: block numbers.
        patterns: for each of `layers` the probabilities [num_heads, query, key], in the model's dtype, on the CPU.
    """

    tokens: list[str]
    layers: list[int]
    patterns: list[torch.Tensor]

    def to_html(self) -> str:
        """The page: pick a layer and a head, point at a cell or a token."""
        data = {
            "tokens": self.tokens,
            "layers": [
                {"layer": layer, "heads": len(pattern), "data": _packed(pattern)}
                for layer, pattern in zip(self.layers, self.patterns, strict=True)
            ],
        }
        template = importlib.resources.files(__package__).joinpath("attention_page.html").read_text(encoding="utf-8")
        return template.replace("/*DATA*/", _for_a_script(data))

    def save(self, path: str | os.PathLike) -> Path:
        """Writes the page and gives its path. Raises CannotWrite, and then leaves nothing half-written."""
        path = Path(path)
        try:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as scratch:
                scratch.write(self.to_html())
            try:
                os.chmod(scratch.name, 0o644)
                os.replace(scratch.name, path)
            except OSError:
                os.unlink(scratch.name)
                raise
        except OSError as error:
            raise CannotWrite(f"'{path}' cannot be written: {error.strerror}.") from error
        return path

    def _repr_html_(self) -> str:
        """In a frame of its own, so that neither styles nor scripts meet the notebook's."""
        page = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:640px;border:0"></iframe>'

    def __repr__(self) -> str:
        return f"AttentionPattern({len(self.layers)} layers, {len(self.tokens)} tokens; .save(path) writes a page)"


def _packed(pattern: torch.Tensor) -> str:
    """Base64 of [num_heads, query, key] as little-endian 16-bit steps."""
    steps = (pattern.float().clamp(0, 1) * _STEPS).round().to(torch.int32)
    return base64.b64encode(steps.numpy().astype("<u2").tobytes()).decode("ascii")


def _for_a_script(data: dict) -> str:
    """JSON that can stand in a script element whatever the tokens are."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@torch.no_grad()
def attention_pattern(
    model: StandardizedTransformer, prompt: PromptLike, layers: int | Sequence[int] | None = None
) -> AttentionPattern:
    """What each head of each block attends to, as a page to look through.

    Args:
        prompt: one prompt, as ``model.trace`` takes it; padding is left out.
        layers: block numbers, negative ones from the end; None is every block. The page holds 2 bytes for each head, query and key
            (a third more as text): name some for a long prompt.

    Raises:
        BadPrompt: several prompts.
        BadOption: no such block.
    """
    prompt = model._prompt(prompt)
    if len(prompt.ids) != 1:
        raise BadPrompt(f"attention_pattern shows one prompt; there are {len(prompt.ids)}.")
    numbers = layer_numbers(model, layers)
    real = torch.ones_like(prompt.ids[0]) if prompt.attention_mask is None else prompt.attention_mask[0]
    kept = real.nonzero()[:, 0]
    with model.trace(prompt):
        found = {
            layer: model.attention_probabilities[layer][0][:, kept][:, :, kept].cpu() for layer in sorted(set(numbers))
        }
    tokens = token_names(_tokenizer(model), prompt.ids[0, kept].tolist())
    return AttentionPattern(tokens, numbers, [found[layer] for layer in numbers])


def _tokenizer(model: StandardizedTransformer) -> object | None:
    try:
        return model.tokenizer
    except NotFound:
        return None
