"""Greedy generation by transformers."""

import torch

from .capture import Reference


def greedy_batch(reference: Reference, ids: torch.Tensor, mask: torch.Tensor, tokens: int = 32) -> torch.Tensor:
    """Prompts, padded on the left, and what follows them; rows that end first are filled up with padding."""
    with torch.no_grad():
        return reference.model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False)


def greedy(reference: Reference, ids: torch.Tensor, tokens: int = 32) -> list[int]:
    """The tokens that follow one prompt; as many as asked for, unless the end of the text comes first."""
    return greedy_batch(reference, ids, torch.ones_like(ids), tokens)[0, ids.shape[1] :].tolist()
