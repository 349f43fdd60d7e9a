"""Activations and lenses, beside plain computations on what transformers computes."""

import json
import shutil

import pytest
import torch

import gemloupe
from conftest import Checkpoint, token_ids
from gemloupe.activations import few_paddings
from gemloupe.interventions import (
    TargetPrompt,
    TargetPromptBatch,
    collect_token_activations_batched,
    compute_next_token_probs,
    get_token_activations,
    it_repeat_prompt,
    logit_lens,
    patch_object_attn_lens,
    patchscope_generate,
    patchscope_lens,
    repeat_prompt,
)
from helpers import encoded, within
from reference.bits import assert_equal_bits

TEXTS = ["the city of", "a much longer text is in", "x"]
TARGETS = ["one ? two", "a ?", "here it is : ?"]
close = within(1e-5)


@pytest.fixture(scope="module", params=["mqa", "softcap", "untied", "gemma", "gemma2"])
def checkpoint(request, zoo):
    return Checkpoint(zoo, request.param, "float32")


def readout(reference, stream):
    """The final norm, the head and the softcap of transformers."""
    with torch.no_grad():
        logits = reference.model.lm_head(reference.model.model.norm(stream))
    cap = getattr(reference.config, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


# -------------------------------------------------------------------------------------------------------- activations


def test_activations_at_the_last_token(model, reference):
    captured = reference.capture(*encoded(model, TEXTS))
    found = get_token_activations(model, TEXTS)
    assert found.shape == (model.num_layers, 3, model.hidden_size)
    for layer, stream in enumerate(found):
        assert_equal_bits(stream, captured[f"layers.{layer}.layer_output"][:, -1], f"layer {layer}")


def test_activations_of_some_layers_in_any_order(model):
    every = get_token_activations(model, TEXTS)
    assert_equal_bits(get_token_activations(model, TEXTS, [2, -1, 0, 2]), every[[2, -1, 0, 2]], "layers")
    assert_equal_bits(get_token_activations(model, TEXTS, layers=1), every[[1]], "one layer")


def test_positions_count_without_padding(model):
    """Token 1 of a short prompt is not column 1 of a batch that is padded on the left."""
    together = get_token_activations(model, TEXTS, idx=1)
    for row, text in enumerate(TEXTS):
        close(together[:, row], get_token_activations(model, text, idx=1)[:, 0], text)
    assert_equal_bits(together[:, 1], get_token_activations(model, TEXTS, idx=1)[:, 1], "the longest")


def test_padding_on_the_right(model):
    ids, mask = encoded(model, TEXTS)
    rows = [row[kept.bool()] for row, kept in zip(ids, mask, strict=True)]
    right = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    prompt = {"input_ids": right, "attention_mask": torch.arange(right.shape[1]) < mask.sum(-1, keepdim=True)}
    prompt["attention_mask"] = prompt["attention_mask"].long()
    close(get_token_activations(model, prompt), get_token_activations(model, TEXTS), "the last token")


def test_activations_inside_an_open_trace(model):
    outside = get_token_activations(model, TEXTS, [1, 2])
    with model.trace(TEXTS) as tracer:
        inside = get_token_activations(model, layers=[1, 2], tracer=tracer)
        probs = model.next_token_probs.save()
    assert_equal_bits(inside, outside, "activations")
    assert_equal_bits(probs, compute_next_token_probs(model, TEXTS), "probabilities")
    with pytest.raises(gemloupe.OutOfOrder, match="pass prompts="), model.trace(TEXTS) as tracer:
        _ = model.layers[0].layer_output
        get_token_activations(model, tracer=tracer)


def test_the_run_ends_at_the_last_layer_that_is_asked_for(model):
    with model.trace(TEXTS) as tracer:
        get_token_activations(model, layers=[0], tracer=tracer)
        _ = model.layers[1].layer_input  # not yet passed


def test_other_activations(model, reference):
    captured = reference.capture(*encoded(model, TEXTS))
    found = get_token_activations(model, TEXTS, get_activations=lambda model, i: model.layers[i].mlp.mlp_neurons)
    for layer, neurons in enumerate(found):
        assert_equal_bits(neurons, captured[f"layers.{layer}.mlp.mlp_neurons"][:, -1], f"layer {layer}")


def test_activations_in_batches(model):
    shown = []
    found = collect_token_activations_batched(
        model, TEXTS, 2, layers=[0, -1], tqdm=lambda batches: shown.extend(batches) or batches
    )
    close(found, get_token_activations(model, TEXTS, layers=[0, -1]), "batches")
    assert [rows for rows, _ in shown] == [[0, 1], [2]]  # in whichever order, each with its like
    close(
        collect_token_activations_batched(model, TEXTS, 8, idx=0), get_token_activations(model, TEXTS, idx=0), "first"
    )


def test_prompts_of_unlike_lengths_are_padded_to_their_like(model):
    lengths = [2, 60, 3, 59, 1, 30]
    rows = [token_ids(length, model.vocab_size, seed=length)[0] for length in lengths]
    ids, mask = torch.zeros(6, 60, dtype=torch.long), torch.zeros(6, 60, dtype=torch.long)
    for row, tokens in enumerate(rows):
        ids[row, 60 - len(tokens) :], mask[row, 60 - len(tokens) :] = tokens, 1
    batch = {"input_ids": ids, "attention_mask": mask}
    parts = few_paddings(model._prompt(batch))
    assert [(rows, part.ids.shape[1]) for rows, part in parts] == [([1, 3, 5], 60), ([0, 2, 4], 3)]
    assert [rows for rows, _ in few_paddings(model._prompt(batch), 2)] == [[1, 3], [2, 5], [0, 4]]
    for given in (batch, {"input_ids": ids.flip(1), "attention_mask": mask.flip(1)}):
        alone = [
            get_token_activations(model, row[real.bool()])
            for row, real in zip(given["input_ids"], given["attention_mask"], strict=True)
        ]
        close(get_token_activations(model, given), torch.cat(alone, dim=1), "each row alone")
    with pytest.raises(gemloupe.BadOption, match="prompt 4"):
        get_token_activations(model, batch, idx=1)


def test_next_token_probs(model, reference):
    found = compute_next_token_probs(model, TEXTS)
    assert_equal_bits(found, reference.capture(*encoded(model, TEXTS))["next_token_probs"], "probabilities")
    assert compute_next_token_probs(model, "the city").shape == (1, model.vocab_size)


def test_what_the_activations_refuse(model):
    refused = [
        (dict(), "prompts, or a tracer"),
        (dict(prompts=TEXTS, layers=[99]), "no block 99"),
        (dict(prompts=TEXTS, layers=[]), "empty"),
        (dict(prompts=TEXTS, layers="all"), "integer"),
        (dict(prompts=TEXTS, idx=4), "no token 4 in prompt 2"),
        (dict(prompts=TEXTS, idx=-9), "no token -9"),
        (dict(prompts=TEXTS, remote=True), "remote=False"),
    ]
    for options, message in refused:
        with pytest.raises(gemloupe.BadOption, match=message):
            get_token_activations(model, **options)
    for prompts, size in ((TEXTS, 0), ([], 2)):
        with pytest.raises(gemloupe.BadOption):
            collect_token_activations_batched(model, prompts, size)


# --------------------------------------------------------------------------------------------------------- logit lens


def test_the_logit_lens(model, reference):
    captured = reference.capture(*encoded(model, TEXTS))
    probs, opposite = logit_lens(model, TEXTS, return_inv_logits=True)
    assert probs.shape == (3, model.num_layers, model.vocab_size) and probs.dtype == torch.float32
    for layer in range(model.num_layers):
        logits = readout(reference, captured[f"layers.{layer}.layer_output"][:, -1])
        close(probs[:, layer], logits.softmax(-1), f"layer {layer}")
        negated = readout(reference, -captured[f"layers.{layer}.layer_output"][:, -1])
        close(opposite[:, layer], negated.softmax(-1), f"layer {layer}, negated")
    close(probs[:, -1], captured["next_token_probs"], "the last layer")
    assert logit_lens(model, TEXTS[0]).shape[0] == 1
    with pytest.raises(gemloupe.BadOption, match="remote"):
        logit_lens(model, TEXTS, remote=True)


# -------------------------------------------------------------------------------------------------------- patchscopes


def patched_probs(model, reference, texts, columns, layer, latents):
    """transformers, with a state of its own at one column of each row."""

    def edit(stream):
        stream[torch.arange(len(texts)), columns] = latents

    return reference.capture(*encoded(model, texts), edits={f"layers.{layer}.layer_output": edit})["next_token_probs"]


def test_the_patchscope_lens(model, reference):
    """Targets of unlike lengths, patched at tokens that are counted from either end."""
    sources = reference.capture(*encoded(model, TEXTS))
    mask = encoded(model, TARGETS)[1]
    targets = TargetPromptBatch.from_prompts(TARGETS, [3, -1, 1])
    begins = (mask == 0).sum(-1)
    columns = torch.stack([begins[0] + 3, torch.tensor(mask.shape[1] - 1), begins[2] + 1])
    found = patchscope_lens(model, TEXTS, targets, layers=[2, 0, -1])
    assert found.shape == (3, 3, model.vocab_size)
    for number, layer in enumerate((2, 0, model.num_layers - 1)):
        latents = sources[f"layers.{layer}.layer_output"][:, -1]
        expected = patched_probs(model, reference, TARGETS, columns, layer, latents)
        close(found[:, number], expected, f"layer {layer}")


def test_the_patchscope_lens_of_latents(model, reference):
    latents = torch.randn(2, 3, model.hidden_size, generator=torch.Generator().manual_seed(3))
    prompt = repeat_prompt()
    columns = torch.full((3,), encoded(model, [prompt.prompt])[0].shape[1] - 1)
    found = patchscope_lens(model, latents=latents, layers=[1, 2])
    for number, layer in enumerate((1, 2)):
        expected = patched_probs(model, reference, [prompt.prompt] * 3, columns, layer, latents[number])
        close(found[:, number], expected, f"layer {layer}")
    assert_equal_bits(patchscope_lens(model, latents=list(latents), layers=[1, 2]), found, "a list")


def test_a_prompt_patched_into_itself_changes_nothing(model):
    found = patchscope_lens(model, TEXTS[0], TEXTS[0])
    for layer in range(model.num_layers):
        close(found[:, layer], compute_next_token_probs(model, TEXTS[0]), f"layer {layer}")


def test_what_the_patchscope_lens_refuses(model):
    latents = torch.zeros(model.num_layers, 2, model.hidden_size)
    refused = [
        (dict(), "one of them"),
        (dict(source_prompts=TEXTS, latents=latents), "one of them"),
        (dict(latents=latents, layers=[0, 1, 2]), "latents have the shape"),
        (dict(latents=latents[:, :, 1:]), "latents have the shape"),
        (dict(latents=[torch.zeros(2, 3), torch.zeros(1, 3)]), "not as many"),
        (dict(source_prompts=TEXTS, target_patch_prompts=["a", "b"]), "2 targets for 3"),
        (dict(source_prompts=TEXTS, target_patch_prompts=TargetPrompt("a", 7)), "no token 7"),
        (dict(source_prompts=TEXTS, remote=True), "remote"),
    ]
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            patchscope_lens(model, **options)


def test_generation_from_a_patched_prompt(model, reference):
    """transformers generates with keys and values of the patched prompt, which it sees once."""
    layers, target = [2, -1], TargetPrompt("one ? two", 3)
    ids = encoded(model, [target.prompt])[0].repeat(3, 1)
    sources = reference.capture(*encoded(model, TEXTS))
    found = patchscope_generate(model, TEXTS, target, max_length=6, layers=layers)
    assert list(found) == layers
    for layer in layers:
        latents = sources[f"layers.{layer % model.num_layers}.layer_output"][:, -1]

        def edit(module, args, output, latents=latents):
            stream = output[0] if isinstance(output, tuple) else output
            if stream.shape[1] > 1:
                stream[:, 3] = latents

        handle = reference.model.model.layers[layer].register_forward_hook(edit)
        try:
            with torch.no_grad():
                expected = reference.model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False
                )
        finally:
            handle.remove()
        assert torch.equal(found[layer], expected), layer
    parts = patchscope_generate(model, TEXTS, target, max_length=6, layers=layers, max_batch_size=2)
    assert all(torch.equal(parts[layer], found[layer]) for layer in layers)


def continued_by_whole_runs(model, ids, mask, layer, columns, latents, steps):
    """Greedy, each step anew from the whole patched text: no cache."""
    rows, ended = torch.arange(len(ids)), torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(steps):
        with model.trace({"input_ids": ids, "attention_mask": mask}):
            model.layers_output[layer][rows, columns] = latents
            best = model.next_token_probs.argmax(-1)
        best[ended] = model.tokenizer.pad_token_id
        ended |= best == model.tokenizer.eos_token_id
        ids = torch.cat([ids, best[:, None]], 1)
        mask = torch.cat([mask, torch.ones(len(ids), 1, dtype=torch.long)], 1)
        if ended.all():
            break
    return ids


@pytest.mark.parametrize("implementation", ["eager", None])
@pytest.mark.parametrize("name", ["mqa", "gemma", "gemma2", "gemma4_e2b", "gemma4_moe"])
def test_a_patched_generation_is_what_whole_runs_say(zoo, name, implementation):
    """With targets of unlike lengths, which are padded and patched at unlike tokens."""
    model = zoo.model(name, "float32", implementation)
    targets = TargetPromptBatch.from_prompts(TARGETS, [3, -1, 1])
    ids, mask = encoded(model, TARGETS)
    begins = (mask == 0).sum(-1)
    columns = torch.stack([begins[0] + 3, torch.tensor(mask.shape[1] - 1), begins[2] + 1])
    layers = [1, model.num_layers - 1]
    found = patchscope_generate(model, TEXTS, targets, max_length=7, layers=layers)
    for layer, latents in zip(layers, get_token_activations(model, TEXTS, layers), strict=True):
        assert torch.equal(found[layer], continued_by_whole_runs(model, ids, mask, layer, columns, latents, 7)), layer
        assert not torch.equal(
            found[layer], model.generate({"input_ids": ids, "attention_mask": mask}, max_new_tokens=7)
        )
    alone = patchscope_generate(model, TEXTS[1], targets[1], max_length=7, layers=1)[1][0]
    assert torch.equal(alone, found[1][1, begins[1] :][: len(alone)])
    assert torch.equal(patchscope_generate(model, TEXTS, targets, 7, 1, max_batch_size=2)[1], found[1])


def test_generation_ends(checkpoint, model, tmp_path):
    """At the end of the text, each row for itself; what follows is padding."""
    whole = patchscope_generate(model, TEXTS, "a ?", max_length=5, layers=1)[1]
    begin = whole.shape[1] - 5
    end = int(whole[0, begin + 1])
    folder = shutil.copytree(checkpoint.folder, tmp_path / "ends")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    ending = gemloupe.StandardizedTransformer(folder, attn_implementation="eager")
    found = patchscope_generate(ending, TEXTS, "a ?", max_length=5, layers=1)[1]
    for row, alone in zip(found, whole, strict=True):
        ended = (alone[begin:] == end).nonzero()
        length = min(begin + int(ended[0]) + 1 if len(ended) else len(alone), found.shape[1])
        assert torch.equal(row[:length], alone[:length])
        assert (row[length:] == ending.tokenizer.pad_token_id).all()
    assert found.shape[1] == whole.shape[1] or (found[:, -1] == end).any()


def test_what_generation_refuses(model):
    for options in (dict(max_length=0), dict(max_batch_size=0), dict(remote=True), dict(layers=[99])):
        with pytest.raises(gemloupe.BadOption):
            patchscope_generate(model, TEXTS, "a ?", **options)
    with pytest.raises(gemloupe.BadOption, match="2 targets for 3"):
        patchscope_generate(model, TEXTS, ["a ?", "b ?"])


# ---------------------------------------------------------------------------------------------------------- attention


def test_the_attention_lens(model, reference):
    sources = reference.capture(*encoded(model, TEXTS))
    ids, mask = encoded(model, TARGETS)
    columns = (mask == 0).sum(-1) + 2
    found = patch_object_attn_lens(model, TEXTS, TARGETS, 2, num_patches=2)
    assert found.shape == (3, model.num_layers, model.vocab_size)
    for layer in range(model.num_layers):
        edits = {}
        for patched in range(layer, min(model.num_layers, layer + 2)):
            read = sources[f"layers.{patched}.attention_norm_output"][:, -1]

            def edit(stream, read=read):
                stream[torch.arange(3), columns] = read

            edits[f"layers.{patched}.attention_norm_output"] = edit
        close(found[:, layer], reference.capture(ids, mask, edits=edits)["next_token_probs"], f"layer {layer}")
    assert patch_object_attn_lens(model, TEXTS[0], TARGETS, -1).shape[0] == 3
    for options in ((TEXTS[:2], TARGETS, 1), (TEXTS, TARGETS, 9), (TEXTS, TARGETS, 1, 0)):
        with pytest.raises(gemloupe.BadOption):
            patch_object_attn_lens(model, *options)


# ------------------------------------------------------------------------------------------------------------ targets


def test_targets():
    batch = TargetPromptBatch.from_target_prompts([TargetPrompt("a", 0), "b"])
    assert list(batch) == [TargetPrompt("a", 0), TargetPrompt("b", -1)] and len(batch) == 2
    assert isinstance(batch[1].index_to_patch, int) and batch.index_to_patch.dtype == torch.long
    assert list(TargetPromptBatch.from_target_prompt(TargetPrompt("a", 2), 2)) == [TargetPrompt("a", 2)] * 2
    for index in (3, [3], torch.tensor([3])):
        assert list(TargetPromptBatch.from_prompts("a", index)) == [TargetPrompt("a", 3)]
    assert TargetPromptBatch.auto(batch, 9) is batch
    assert list(TargetPromptBatch.auto("a", 2)) == [TargetPrompt("a", -1)] * 2
    assert list(TargetPromptBatch.auto(["a", TargetPrompt("b", 1)], 9)) == [TargetPrompt("a", -1), TargetPrompt("b", 1)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TargetPromptBatch.auto(3, 1),
        lambda: TargetPromptBatch.auto([3], 1),
        lambda: TargetPromptBatch.from_prompts(["a", "b"], [1]),
        lambda: TargetPromptBatch.from_prompts(["a"], 1.5),
        lambda: TargetPromptBatch.from_prompts(["a"], [1.5]),
    ],
)
def test_targets_that_are_none(make):
    with pytest.raises(gemloupe.BadOption):
        make()


def test_the_repeat_prompt():
    assert repeat_prompt() == TargetPrompt("king king\n1135 1135\nhello hello\n?", -1)
    assert repeat_prompt(["a", "b"], "=", ", ", "_", 2) == TargetPrompt("a=a, b=b, _", 2)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("instruction", [True, False])
@pytest.mark.parametrize("system", [True, False])
def test_the_repeat_prompt_of_a_chat(zoo, complete, instruction, system):
    """The token that is patched is the placeholder's, whatever the template puts behind it."""
    tokenizer = zoo.model("mqa").tokenizer
    found = it_repeat_prompt(tokenizer, complete_prompt=complete, add_user_instr=instruction, use_system_prompt=system)
    tokens = tokenizer.tokenize(found.prompt)
    assert tokens[found.index_to_patch] == "?"
    assert ("<start_of_turn>system" in found.prompt) == system
    assert found.prompt.count("king king") == (2 if complete else 1)
    if complete:
        assert found.prompt.endswith("?") and found.index_to_patch == -1
    else:
        assert found.prompt.endswith("<start_of_turn>model\n")


def test_a_template_without_a_system_role(zoo):
    tokenizer = zoo.model("mqa").tokenizer
    strict = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"

    class Strict:
        def __call__(self, *args, **options):
            return tokenizer(*args, **options)

        def apply_chat_template(self, chat, **options):
            return tokenizer.apply_chat_template(chat, chat_template=strict + tokenizer.chat_template, **options)

    found = it_repeat_prompt(Strict())
    assert "careful assistant" in found.prompt and "system" not in found.prompt
    assert found.prompt.endswith("?")
