"""Greedy generation gives the reference's tokens, with its cache on blocks of either kind."""

import json
import shutil
from itertools import zip_longest

import pytest
import torch
from tokenizers import Tokenizer

from conftest import token_ids
from gemloupe import StandardizedTransformer
from reference import checkpoints
from reference.capture import Reference
from reference.greedy import greedy, greedy_batch

# Shorter than the window and far beyond it: the cache of a sliding block drops tokens before, while and never.
LENGTHS = [1, 4, 7, 40]


def generated(model, ids: torch.Tensor, **options) -> list[int]:
    whole = model.generate(ids, max_new_tokens=32, **options)
    assert torch.equal(whole[:, : ids.shape[1]], ids)
    return whole[0, ids.shape[1] :].tolist()


def assert_same_or_near_tie(checkpoint, whole: list[int], expected: list[int], prompt: int):
    """The reference's tokens; in bfloat16 another where the reference's best two are as near as a few roundings."""
    if whole == expected:
        return
    assert checkpoint.dtype == "bfloat16", "in float32 the tokens are the reference's"
    pairs = zip_longest(whole, expected, fillvalue=0)  # a batch is as long as its longest row
    first = next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), None)
    if first is None:
        return
    assert first >= prompt
    if checkpoint.reference().config.use_bidirectional_attention:
        return  # what a pass without a cache sees is another context
    logits = checkpoint.reference(None).logits(torch.tensor([[t for t in expected[:first] if t]]))[0, -1].float()
    gap = logits[expected[first]] - logits[whole[first]]
    assert gap <= 8 * logits.abs().max() / 256, "further apart than 8 units in the last place of the largest logit"


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_reference_s_tokens(checkpoint, implementation, length):
    ids = checkpoint.ids(length, seed=length)
    expected = greedy(checkpoint.reference(implementation), ids)
    found = generated(checkpoint.model(implementation), ids)
    if implementation is None:
        assert_same_or_near_tie(checkpoint, ids[0].tolist() + found, ids[0].tolist() + expected, length)
    else:
        assert found == expected


@pytest.mark.parametrize("implementation", ["eager", None])
def test_a_padded_batch(checkpoint, implementation):
    ids, mask = checkpoint.padded((11, 3, 1))
    expected = greedy_batch(checkpoint.reference(implementation), ids, mask).tolist()
    found = checkpoint.model(implementation).generate({"input_ids": ids, "attention_mask": mask}, max_new_tokens=32)
    if implementation is None:
        for whole, wanted in zip(found.tolist(), expected, strict=True):
            assert_same_or_near_tie(checkpoint, whole, wanted, ids.shape[1])
    else:
        assert found.tolist() == expected


def test_each_step_is_told_and_may_be_the_last(zoo):
    ids, told = token_ids(9, 400), []

    def streamer(tokens):
        told.extend(tokens)
        return len(told) < 5

    expected = greedy(zoo.reference("mqa"), ids, 5)
    assert generated(zoo.model("mqa"), ids, streamer=streamer) == told == expected


def test_a_string(zoo):
    prompt = "The Eiffel Tower is in the city of"
    ids = Tokenizer.from_file(str(zoo.folder("mqa") / "tokenizer.json")).encode(prompt).ids
    expected = greedy(zoo.reference("mqa"), torch.tensor([ids]))
    whole = zoo.model("mqa").generate(prompt, max_new_tokens=32)
    assert whole[0].tolist() == ids + expected


def test_a_gguf_file(zoo):
    model = StandardizedTransformer(checkpoints.gguf_file(zoo.root), attn_implementation="eager")
    ids = token_ids(9, 393)
    assert generated(model, ids) == greedy(zoo.reference("gguf"), ids)


def test_it_ends_where_the_reference_ends(zoo, tmp_path):
    """The end of the text is a token that the model happens to choose after a while."""
    ids = token_ids(9, 400)
    free = greedy(zoo.reference("mqa"), ids)
    folder = tmp_path / "model"
    shutil.copytree(zoo.folder("mqa"), folder)
    end = next(token for index, token in enumerate(free) if index >= 5 and token not in free[:index])
    for file in ("config.json", "generation_config.json"):
        config = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(config | {"eos_token_id": [1, end]}))
    expected = greedy(Reference(folder), ids)
    assert 5 < len(expected) < 32 and expected[-1] == end
    assert generated(StandardizedTransformer(folder, attn_implementation="eager"), ids) == expected
