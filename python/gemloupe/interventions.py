"""What researchers do with a model, ready made: lenses, patches, ablations, attributions.

The classic lenses have nnterp's names and signatures; `remote` is accepted and must be False.
"""

from __future__ import annotations

from .activations import collect_token_activations_batched, compute_next_token_probs, get_token_activations
from .attribution import LogitAttribution, direct_logit_attribution
from .gradient_attribution import (
    AttributionPatching,
    IntegratedGradients,
    attribution_patching,
    integrated_gradients,
)
from .lenses import logit_lens, patch_object_attn_lens, patchscope_generate, patchscope_lens
from .patching import ActivationPatching, HeadAblation, activation_patching, head_ablation
from .targets import TargetPrompt, TargetPromptBatch, it_repeat_prompt, repeat_prompt

__all__ = [
    "ActivationPatching",
    "AttributionPatching",
    "HeadAblation",
    "IntegratedGradients",
    "LogitAttribution",
    "TargetPrompt",
    "TargetPromptBatch",
    "activation_patching",
    "attribution_patching",
    "collect_token_activations_batched",
    "compute_next_token_probs",
    "direct_logit_attribution",
    "get_token_activations",
    "head_ablation",
    "integrated_gradients",
    "it_repeat_prompt",
    "logit_lens",
    "patch_object_attn_lens",
    "patchscope_generate",
    "patchscope_lens",
    "repeat_prompt",
]
