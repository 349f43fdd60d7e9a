"""Greedy generation by transformers."""

import torch

from .capture import Reference


def greedy(reference: Reference, ids: torch.Tensor, tokens: int = 32) -> list[int]:
    """The tokens that follow `ids`; as many as asked for, unless the end of the text comes first."""
    with torch.no_grad():
        whole = reference.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False
        )
    return whole[0, ids.shape[1] :].tolist()
