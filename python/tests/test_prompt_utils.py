"""Prompts with targets, beside sums over what transformers gives."""

import pytest
import torch
import transformers

import gemloupe
from conftest import Checkpoint
from gemloupe.interventions import logit_lens, patch_object_attn_lens
from gemloupe.prompt_utils import (
    Prompt,
    TokenizationError,
    get_first_tokens,
    next_token_probs_unsqueeze,
    run_prompts,
)
from helpers import within

TEXTS = ["the city of", "a much longer text is in", "x"]
close = within(1e-5)


@pytest.fixture(scope="module")
def checkpoint(zoo):
    return Checkpoint(zoo, "softcap", "float32")


@pytest.fixture(scope="module")
def model(checkpoint):
    return checkpoint.model()


def spelled(model, ids):
    return model.tokenizer.convert_ids_to_tokens(ids)


# -------------------------------------------------------------------------------------------------------------- tokens


def test_first_tokens_with_a_space_and_without(model):
    assert spelled(model, get_first_tokens("city", model)) == ["c", "▁city"]
    assert spelled(model, get_first_tokens(["city", "is", "city"], model)) == ["c", "▁city", "is", "▁is"]
    assert get_first_tokens("city", model.tokenizer) == get_first_tokens("city", model)


def test_a_lone_space_is_no_word_s_first_token(model):
    """A digit has no token with a space before it: the space would be the first token of any such word."""
    assert spelled(model, get_first_tokens("1135", model)) == ["1"]
    assert spelled(model, get_first_tokens(" city", model)) == ["▁city"]


def test_first_tokens_of_transformers_tokenizer(checkpoint, model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.folder)
    words = ["city", "the", "1135", "é", "人"]
    assert get_first_tokens(words, tokenizer) == get_first_tokens(words, model)


def test_first_tokens_behind_a_rare_character(model):
    words = ["city", "the", "1135"]
    assert get_first_tokens(words, model, use_hacky_implementation=True) == get_first_tokens(words, model)


class Spaces:
    """A tokenizer that puts a space before every text, as Llama's does."""

    def __init__(self, tokenizer, joins=False):
        self.tokenizer, self.joins = tokenizer, joins

    def __call__(self, text, add_special_tokens):
        if self.joins and text.startswith("🍐") and text != "🍐":
            return self.tokenizer("joined", add_special_tokens=False)
        return self.tokenizer(text if text.startswith(" ") else f" {text}", add_special_tokens=False)

    def decode(self, ids):
        return self.tokenizer.decode(ids)


def test_a_tokenizer_that_adds_a_space(model):
    assert get_first_tokens(["city", "the"], Spaces(model.tokenizer)) == get_first_tokens(["city", "the"], model)
    with pytest.raises(TokenizationError, match="joins") as raised:
        get_first_tokens("city", Spaces(model.tokenizer, joins=True))
    assert isinstance(raised.value, gemloupe.Error)


@pytest.mark.parametrize("words", ["", [], ["a", ""]])
def test_no_words(model, words):
    with pytest.raises(gemloupe.BadOption, match="empty"):
        get_first_tokens(words, model)


# ------------------------------------------------------------------------------------------------------------- prompts


def test_a_prompt_from_strings(model):
    prompt = Prompt.from_strings("the", {"place": ["city", "at"], "other": "is"}, model)
    assert prompt.target_strings == {"place": ["city", "at"], "other": "is"}
    assert prompt.target_tokens == {
        "place": get_first_tokens(["city", "at"], model),
        "other": get_first_tokens("is", model),
    }
    for words in ("city", ["city", "at"]):
        named = Prompt.from_strings("the", words, model.tokenizer)
        assert named.target_tokens == {"target": get_first_tokens(words, model)}
        assert named.target_strings == {"target": words}


def test_collisions():
    prompt = Prompt("a", {"one": [1, 2], "two": [2, 3], "three": [4, 4]})
    assert not prompt.has_no_collisions()
    assert not prompt.has_no_collisions("three")
    assert prompt.has_no_collisions("one") and prompt.has_no_collisions(["one", "two"])


def test_target_probs():
    probs = torch.rand(2, 3, 10, generator=torch.Generator().manual_seed(0))
    prompt = Prompt("a", {"one": [1, 2, 2], "two": [7]})
    found = prompt.get_target_probs(probs)
    torch.testing.assert_close(found["one"], probs[:, :, 1] + probs[:, :, 2])
    torch.testing.assert_close(found["two"], probs[:, :, 7])
    torch.testing.assert_close(prompt.get_target_probs(probs, layer=-1)["one"], found["one"][:, -1])
    torch.testing.assert_close(prompt.get_target_probs(probs[:, 0])["one"], found["one"][:, :1])
    with pytest.raises(gemloupe.BadValue):
        prompt.get_target_probs(probs[0, 0])


def test_running_a_prompt(checkpoint, model):
    prompt = Prompt("the city of", {"one": [7, 8], "two": [9]})
    ids = model.tokenizer(prompt.prompt, return_tensors="pt")["input_ids"]
    expected = checkpoint.reference().capture(ids)["next_token_probs"]
    for found in (prompt.run(model), prompt.run(model, next_token_probs_unsqueeze)):
        close(found["one"], expected[:, [7, 8]].sum(-1, keepdim=True), "one")
        close(found["two"], expected[:, [9]], "two")
    layers = prompt.run(model, logit_lens)
    assert layers["one"].shape == (1, model.num_layers)
    close(layers["one"][:, -1:], found["one"], "the last layer")


def some_prompts():
    return [Prompt(text, {"one": [7 + row], "two": [9, 20 + row]}) for row, text in enumerate(TEXTS)]


@pytest.mark.parametrize("size", [1, 2, 32])
def test_running_prompts(checkpoint, model, size):
    encoded = model.tokenizer(TEXTS, return_tensors="pt", padding=True)
    expected = checkpoint.reference().capture(encoded["input_ids"], encoded["attention_mask"])["next_token_probs"]
    found = run_prompts(model, some_prompts(), size, tqdm=None)
    assert list(found) == ["one", "two"] and found["one"].shape == (3, 1)
    for row in range(3):
        close(found["one"][row], expected[row, [7 + row]], "one")
        close(found["two"][row], expected[row, [9, 20 + row]].sum(-1, keepdim=True), "two")


def test_running_prompts_through_a_lens(model):
    found = run_prompts(model, some_prompts(), 2, logit_lens, tqdm=None)
    assert found["one"].shape == (3, model.num_layers)
    close(found["one"][:, -1:], run_prompts(model, some_prompts(), tqdm=None)["one"], "the last layer")
    options = {"source_prompts": "the city", "attn_idx_patch": -1}
    lens = lambda model, texts, **options: patch_object_attn_lens(model, target_prompts=texts, **options)  # noqa: E731
    assert run_prompts(model, some_prompts(), 2, lens, options, tqdm=None)["two"].shape == (3, model.num_layers)


def test_progress(model, capsys):
    run_prompts(model, some_prompts(), 2)
    assert "Running prompts" in capsys.readouterr().err
    shown = []
    run_prompts(model, some_prompts(), 2, tqdm=lambda starts, desc: shown.append(desc) or starts)
    run_prompts(model, some_prompts(), 2, tqdm=None)
    assert shown == ["Running prompts"] and capsys.readouterr().err == ""


def test_what_running_refuses(model):
    assert run_prompts(model, []) == {}
    unlike = [Prompt("a", {"one": [7]}), Prompt("a", {"two": [7]})]
    for prompts, options in ((unlike, {}), (some_prompts(), {"batch_size": 0}), (some_prompts(), {"remote": True})):
        with pytest.raises(gemloupe.BadOption):
            run_prompts(model, prompts, **options)
