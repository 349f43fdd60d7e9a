"""Figures and tables of what the interventions give, and the attention pattern as a page of its own."""

from __future__ import annotations

import html
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .accessors import check_k, token_names
from .attention_page import AttentionPattern, attention_pattern
from .errors import BadOption, BadValue
from .prompt_utils import Prompt

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

__all__ = ["AttentionPattern", "attention_pattern", "plot_topk_tokens", "prompts_to_df"]

_COLUMNS = 3  # figures beside each other, at most


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"this needs {package}, which is not installed: pip install 'gemloupe[display]'") from error


def plot_topk_tokens(
    next_token_probs: torch.Tensor,
    tokenizer: Any,
    k: int = 4,
    title: str | None = None,
    use_token_ids: bool = False,
    file: str | Path | None = None,
    save_html: bool = True,
    height: int = 300,
    width: int = 400,
    show: bool = False,
) -> plotly.graph_objects.Figure:
    """A heatmap for each prompt: the `k` likeliest tokens after each layer, their probability as colour.

    Args:
        next_token_probs: [prompts, layers, vocab_size], [layers, vocab_size] or [vocab_size].
        tokenizer: what spells the tokens; None gives ids.
        use_token_ids: write ids in place of tokens.
        file: where to save the figure: ``.html``, or a picture, which needs kaleido.
        save_html: beside a picture also save a page of the same name.
        height, width: of each heatmap, in pixels.
        show: also open it. A notebook shows the figure that is returned by itself.

    Raises:
        ImportError: plotly is not installed; ``gemloupe[display]`` has it.
        BadValue: a tensor of another shape, or without prompts.
        BadOption: k is not between 1 and the size of the vocabulary.
    """
    _optional("plotly")
    graphs, subplots = _optional("plotly.graph_objects"), _optional("plotly.subplots")
    probs = _as_batch(next_token_probs)
    check_k(k, probs.shape[2])
    columns = min(_COLUMNS, len(probs))
    rows = math.ceil(len(probs) / columns)
    figure = subplots.make_subplots(rows=rows, cols=columns, vertical_spacing=0.3 / rows, horizontal_spacing=0.05)
    for number, layers in enumerate(probs):
        place = dict(row=number // columns + 1, col=number % columns + 1)
        figure.add_trace(_heatmap(graphs, layers.topk(k), None if use_token_ids else tokenizer), **place)
        figure.update_xaxes(title_text="Tokens", **place)
        figure.update_yaxes(title_text="Layers", **place)
    figure.update_layout(
        title=title or f"The {k} likeliest tokens after each layer",
        height=max(height * rows, 1),
        width=max(width * columns, 1),
        showlegend=False,
        coloraxis=dict(cmin=0, cmax=1, colorscale="Blues", colorbar=dict(title="Probability", thickness=15)),
    )
    if file is not None:
        _save(figure, Path(file), save_html)
    if show:
        figure.show()
    return figure


def _as_batch(probs: torch.Tensor) -> torch.Tensor:
    if probs.ndim not in (1, 2, 3) or probs.numel() == 0:
        raise BadValue(
            f"next_token_probs have the shape {list(probs.shape)}; expected [prompts, layers, vocab_size], [layers, vocab_size] or "
            "[vocab_size], none of them empty."
        )
    return probs.detach().float().cpu().reshape(*[1] * (3 - probs.ndim), *probs.shape)


def _heatmap(graphs: Any, best: Any, tokenizer: Any) -> Any:
    """`best`: values and indices [layers, k]. Plotly takes texts for HTML, hence the escapes."""
    ids = best.indices.tolist()
    named = [[html.escape(repr(name), quote=False) for name in token_names(tokenizer, layer)] for layer in ids]
    hover = [[f"ID: {i}<br>Token: {n}" for i, n in zip(*layer, strict=True)] for layer in zip(ids, named, strict=True)]
    return graphs.Heatmap(
        z=best.values.tolist(),
        x=list(range(len(ids[0]))),
        y=list(range(len(ids))),
        text=ids if tokenizer is None else named,
        texttemplate="%{text}",
        coloraxis="coloraxis",
        hovertext=hover,
        hovertemplate="Layer: %{y}<br>%{hovertext}<br>Probability: %{z:.4f}<extra></extra>",
    )


def _save(figure: Any, path: Path, save_html: bool) -> None:
    if path.suffix == ".html":
        figure.write_html(path)
        return
    if not path.suffix:
        raise BadOption(f"file='{path}' has no suffix that says what to write: .html, .png, .svg, …")
    if save_html:
        figure.write_html(path.with_suffix(".html"))
    _optional("kaleido")
    figure.write_image(path, scale=3)


def prompts_to_df(prompts: Sequence[Prompt], tokenizer: Any = None) -> pandas.DataFrame:
    """A table of prompts, a column each: the text, each target's words and, with a `tokenizer`, the spelling of its tokens.

    A target that a prompt lacks is None there.

    Raises:
        ImportError: pandas is not installed; ``gemloupe[display]`` has it.
    """
    pandas = _optional("pandas")
    columns = {}
    for number, prompt in enumerate(prompts):
        column: dict[str, Any] = {"prompt": prompt.prompt}
        for target, words in (prompt.target_strings or {}).items():
            column[f"{target}_string"] = words
        if tokenizer is not None:
            for target, ids in prompt.target_tokens.items():
                column[f"{target}_tokens"] = token_names(tokenizer, ids)
        columns[number] = column
    rows = list(dict.fromkeys(name for column in columns.values() for name in column))
    table = {number: [column.get(name) for name in rows] for number, column in columns.items()}
    return pandas.DataFrame(table, index=rows, dtype=object)
