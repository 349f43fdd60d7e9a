"""Uses that once went wrong without a word: edits that were lost, masks that were dropped, runs that were mixed up."""

import _thread
import asyncio
import contextlib
import copy
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import gemloupe
from conftest import token_ids
from gemloupe import StandardizedTransformer
from gemloupe.errors import BadConfig, BadOption, BadPrompt, BadValue, OutOfOrder, OutsideTrace, ReadOnly
from helpers import logits_of
from test_config import with_config


@pytest.fixture(params=["eager", None])
def model(request, zoo):
    return zoo.model("softcap", "float32", request.param)


IDS = torch.tensor([[2, 17, 300, 21, 5, 88, 123, 7]])


# ------------------------------------------------------------------------------------------------ rows of logits


def test_a_written_row_stays_written(model):
    with model.trace(IDS):
        model.logits[:, -1].zero_()
        again = model.logits[:, -1].save()
    assert again.eq(0).all()
    with model.trace(IDS):
        model.lm_head_output[:, -1].zero_()
        through = model.logits[:, -1].save()
        probs = model.next_token_probs.save()
    assert through.eq(0).all() and torch.allclose(probs, probs[:, :1])


def test_a_part_written_after_the_whole_was_read(model):
    with model.trace(IDS):
        last = model.logits[:, -1]
        model.logits.save()
        last.zero_()
        probs = model.next_token_probs.save()
    assert torch.allclose(probs, probs[:, :1])


def test_the_last_write_of_a_row_counts(model):
    with model.trace(IDS):
        x, y = model.logits[:, -1], model.logits[:, -1]
        y[:] = 2
        x[:] = 1
        whole = model.logits.save()
    assert whole[:, -1].eq(1).all()


def test_what_the_head_reads_is_fixed_once_rows_were_taken(model):
    with pytest.raises(OutOfOrder), model.trace(IDS):
        model.logits[:, -1].save()
        model.final_norm_output = torch.zeros(1, 8, model.hidden_size)


def test_probabilities_are_not_written(model):
    with pytest.raises(ReadOnly, match="derived"), model.trace(IDS):
        model.next_token_probs[:] = 0


# ------------------------------------------------------------------------------------------------ tensors of the caller


def test_an_assigned_tensor_can_be_used_again(model):
    buffer = torch.empty(1, 8, model.hidden_size)
    with model.trace(IDS):
        for block in range(3):
            buffer.fill_(0.1 * (block + 1))
            model.layers[block].mlp.mlp_output = buffer
        buffer.zero_()
        reused = model.logits.save()
    with model.trace(IDS):
        for block in range(3):
            model.layers[block].mlp.mlp_output = torch.full_like(buffer, 0.1 * (block + 1))
        assert torch.equal(model.logits.save(), reused)


def test_a_snapshot_of_the_outer_of_two_runs(model):
    with model.trace(IDS) as outer:
        with model.trace(IDS):
            saved = outer.read("layers.0.layer_output").save()
        kept = saved.clone()
        outer.read("layers.0.layer_output")[:] = 0
    assert torch.equal(saved, kept)


def test_tasks_have_runs_of_their_own(model):
    async def shape(ids):
        with model.trace(ids):
            await asyncio.sleep(0)
            return tuple(model.layers[0].layer_output.shape)

    async def both():
        return await asyncio.gather(shape(IDS), shape(IDS[:, :5]))

    assert asyncio.run(both()) == [(1, 8, model.hidden_size), (1, 5, model.hidden_size)]


def test_threads_have_runs_of_their_own(model):
    shapes = {}

    def run(length):
        with model.trace(IDS[:, :length]):
            for _ in range(50):
                shapes[length] = tuple(model.layers[0].layer_output.shape)

    threads = [threading.Thread(target=run, args=(length,)) for length in (3, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shapes == {3: (1, 3, model.hidden_size), 6: (1, 6, model.hidden_size)}


def test_inference_mode(model):
    expected = logits_of(model, IDS)
    with torch.inference_mode(), model.trace(IDS):
        stream = model.layers[1].layer_output.save()
        model.layers[2].layer_output = model.layers[2].layer_output * 1.0
        logits = model.logits.save()
        probs = model.next_token_probs.save()
    assert torch.equal(logits, expected) and stream.shape[1] == 8 and probs.shape == (1, model.vocab_size)


# ------------------------------------------------------------------------------------------------ prompts


def test_masks_and_positions_are_never_dropped(model):
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]])
    expected = model({"input_ids": IDS, "attention_mask": mask})
    assert torch.equal(model({"input_ids": IDS}, attention_mask=mask), expected)
    assert not torch.equal(expected, model(IDS))
    with pytest.raises(BadPrompt, match="given twice"):
        model({"input_ids": IDS, "attention_mask": mask}, attention_mask=mask)
    with pytest.raises(BadPrompt, match="attention_mask"):
        model("the city", attention_mask=torch.zeros(3, 3))
    length = model.tokenizer("the city", return_tensors="pt")["input_ids"].shape[1]
    spread = torch.arange(length)[None] * 3
    assert not torch.equal(model("the city", position_ids=spread), model("the city"))
    with pytest.raises(BadPrompt, match="a mask of their own"):
        model([[2, 5, 9], [2, 5]], attention_mask=torch.ones(2, 3))


@pytest.mark.parametrize("prompt", [5, b"hello", {2, 3}, [2, None], ["a", 2], [2, "a"], [2**63], 3.5])
def test_what_is_no_prompt(model, prompt):
    with pytest.raises(BadPrompt):
        model(prompt)


def test_an_id_written_outside_the_vocabulary(model):
    with pytest.raises(BadValue, match="outside the vocabulary"), model.trace(IDS):
        model.input_ids[0, 3] = 10**7
        model.logits.save()


# ------------------------------------------------------------------------------------------------ weights, options


def test_weights_are_assigned_in_place(zoo, tmp_path):
    model = StandardizedTransformer(zoo.folder("softcap"))
    before = model(IDS)
    weight = model.layers[1].mlp.down_proj.weight.clone()
    model.layers[1].mlp.down_proj.weight *= 2
    assert torch.equal(model.layers[1].mlp.down_proj.weight, weight * 2)
    model.layers[1].mlp.down_proj.weight = weight
    assert torch.equal(model(IDS), before)
    with pytest.raises(BadValue, match="shape"):
        model.layers[1].mlp.down_proj.weight = torch.zeros(3)


def test_options_and_configs_that_make_no_sense(zoo, tmp_path):
    with pytest.raises(BadOption, match="threads must be from 1 to 1024"):
        StandardizedTransformer(zoo.folder("softcap"), threads=10**6)
    with_config(zoo.folder("softcap"), tmp_path / "dtype", dtype="x")
    with pytest.raises(BadConfig, match=r"config\.json: dtype 'x'"):
        StandardizedTransformer(tmp_path / "dtype")
    with_config(zoo.folder("softcap"), tmp_path / "eps", rms_norm_eps=-1)
    with pytest.raises(BadConfig, match="rms_norm_eps"):
        StandardizedTransformer(tmp_path / "eps")


def test_a_model_and_its_modules_can_be_copied(model):
    assert copy.copy(model.layers[0])._path == "layers.0"
    assert copy.copy(model).num_layers == model.num_layers


def test_what_people_know_of_a_module(model):
    names = dict(model.named_parameters())
    assert len(list(model.parameters())) == len(names) == len(model.state_dict()) and model.eval() is model
    assert names["model.norm.weight"].shape == (model.hidden_size,)
    with pytest.raises(BadValue, match="batch_decode"):
        model.tokenizer.decode(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(BadValue, match="project_on_vocab takes"):
        model.project_on_vocab([1, 2])


def test_a_generator_that_waits_inside_a_trace(model):
    """Its run is its own: not its caller's, nor another generator's."""
    x, y = token_ids(9, model.vocab_size, 1), token_ids(9, model.vocab_size, 2)

    def streams(ids):
        with model.trace(ids):
            for layer in model.layers:
                yield layer.layer_output.save()

    expected = [list(streams(ids)) for ids in (x, y)]
    found = list(zip(streams(x), streams(y), strict=True))
    for layer, pair in enumerate(found):
        assert torch.equal(pair[0], expected[0][layer]) and torch.equal(pair[1], expected[1][layer])
    waiting = streams(x)
    next(waiting)
    with pytest.raises(OutsideTrace):
        model.layers[2].layer_output  # noqa: B018
    with model.trace(y):
        next(waiting)
        assert torch.equal(model.layers[2].layer_output.save(), expected[1][2])
    assert torch.equal(next(waiting), expected[0][2])
    waiting.close()


def test_values_in_several_threads(model):
    """With edits, skips and generations: every thread has the bits that it has alone."""

    def work(seed):
        ids = token_ids(9, model.vocab_size, seed)
        with model.trace(ids):
            model.layers[1].layer_output[:, -1] *= seed
            model.skip_layer(2)
            logits = model.logits.save()
        return logits, model.generate(ids, max_new_tokens=3, eos_token_id=-1, do_sample=False)

    alone = [work(seed) for seed in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for expected, found in zip(alone, pool.map(work, range(1, 9)), strict=True):
                assert torch.equal(expected[0], found[0]) and torch.equal(expected[1], found[1])


def test_the_interpreter_runs_while_the_model_computes(model):
    ids, ticks, done = token_ids(300, model.vocab_size, 1), [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before, interval = len(ticks), sys.getswitchinterval()
    sys.setswitchinterval(10)  # a thread that computes with the lock would keep it
    try:
        model(ids)
        during = len(ticks) - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert during > 2


def test_ctrl_c_ends_a_run_and_leaves_the_model(model):
    ids = token_ids(400, model.vocab_size, 1)
    timer = threading.Timer(0.05, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while True:
            model(ids)
    timer.join()
    assert torch.equal(model(ids), model(ids))


def test_tuples_and_dictionaries_are_saved(model):
    ids = token_ids(9, model.vocab_size, 1)
    with model.trace(ids):
        positional, keywords = model.layers[1].inputs
        kept = keywords.save()
        part = model.layers[1].self_attn.output[:1].save()
        best = gemloupe.save(model.logits[:, -1].topk(3))
    assert set(kept) == set(keywords) and part[0].shape == (1, 9, model.hidden_size) and best[0].shape == (1, 3)
    copy.copy(model.layers[0]._module)


def test_beside_a_library_that_gives_every_object_a_save(zoo):
    """As nnsight does: it can be imported first, and its own traces need its own method."""
    script = """
import ctypes, gc, sys, torch
methods = gc.get_referents(object.__dict__)[0]
methods["save"] = lambda self: ("theirs", self)
ctypes.pythonapi.PyType_Modified(ctypes.py_object(object))
import gemloupe
model = gemloupe.StandardizedTransformer(sys.argv[1])
with model.trace(torch.arange(5)[None] + 3):
    ours = model.layers[0].layer_output.save()
assert isinstance(ours, torch.Tensor)
assert torch.ones(2).save()[0] == "theirs"
"""
    done = subprocess.run(
        [sys.executable, "-c", script, zoo.folder("mqa")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_context_managers_around_a_trace(model):
    ids = token_ids(9, model.vocab_size, 1)

    @contextlib.contextmanager
    def traced():
        with model.trace(ids) as tracer:
            yield tracer

    with traced():
        stream = model.layers[0].layer_output.save()
    assert stream.shape == (1, 9, model.hidden_size)

    def generator(opened):
        with contextlib.ExitStack() as stack:
            stack.enter_context(opened)
            yield
            model.layers[0].layer_output  # noqa: B018
            yield

    for opened in (model.trace(ids), model.edit()):
        waiting = generator(opened)
        next(waiting)
        with pytest.raises(OutsideTrace, match="while a run goes on"):
            model.layers[0].layer_output  # noqa: B018
        next(waiting)
        waiting.close()
