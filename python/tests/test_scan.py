"""`model.scan()`: shapes and dtypes of every value, from no weights and without arithmetic."""

import pytest
import torch

from conftest import token_ids
from gemloupe import StandardizedTransformer
from gemloupe.errors import BadPrompt, OutOfOrder
from helpers import read, standard
from reference.checkpoints import NAMES, RECIPES


def described(value):
    if isinstance(value, (tuple, list)):
        return [described(item) for item in value]
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    return None if value is None else (tuple(value.shape), value.dtype)


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", NAMES)
def test_it_has_what_a_run_has(zoo, name, implementation):
    model = zoo.model(name, "bfloat16", implementation)
    vocabulary = RECIPES[name].config["vocab_size"]
    ids = torch.cat([token_ids(9, vocabulary, 3), token_ids(9, vocabulary, 4)])
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    rows = [row.name for row in sorted(model._row_table, key=lambda row: row.position) if row.name != "input_size"]
    with model.trace({"input_ids": ids, "attention_mask": mask}) as tracer:
        expected = {name: described(read(model, tracer, name)) for name in rows}
    with model.scan({"input_ids": ids, "attention_mask": mask}) as tracer:
        values = {name: read(model, tracer, name) for name in rows}
        found = {name: described(value) for name, value in values.items()}
    assert found == expected
    assert all(value.is_meta for value in standard(values).values() if isinstance(value, torch.Tensor))


def test_without_weights_and_without_edits(zoo):
    model = StandardizedTransformer.from_config("gemma-3-27b")
    with model.scan([[2, 5, 7]]):
        assert model.layers[40].self_attn.attention_queries.shape == (1, model.num_heads, 3, model.head_dim)
        patched = model.layers[41].layer_output + model.layers[41].layer_output.mean()
        model.layers[41].layer_output = patched
        logits = model.logits[:, -1].save()
    assert logits.shape == (1, model.vocab_size)
    tiny = zoo.model("mqa")
    with tiny.edit() as edited:
        edited.layers[0].layer_output.apply(lambda live: live.cpu())
    with edited.scan(token_ids(5, tiny.vocab_size)):
        assert edited.layers[0].layer_output.shape == (1, 5, tiny.hidden_size)


def test_its_order_and_prompts_are_a_trace_s(zoo):
    model = zoo.model("mqa")
    with pytest.raises(OutOfOrder), model.scan(token_ids(5, model.vocab_size)):
        model.layers[1].layer_output.shape  # noqa: B018
        model.layers[0].layer_output.shape  # noqa: B018
    with pytest.raises(BadPrompt, match="vocabulary"):
        model.scan([[model.vocab_size]])
