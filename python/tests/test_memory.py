"""What runs leave behind, and what they hold at once: resident memory of a process of its own."""

import subprocess
import sys
import textwrap

import pytest
import transformers

MIB = 1 << 20

PRELUDE = """
import sys, torch, gemloupe
from pathlib import Path
torch.set_num_threads(1)

def resident(what="VmRSS"):
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(what + ":"))
    return int(line.split()[1]) * 1024

model = gemloupe.StandardizedTransformer(sys.argv[1])
"""


def measured(folder, code: str, **variables) -> dict:
    """What the code leaves in `found`."""
    lines = [
        PRELUDE,
        *(f"{name} = {value!r}" for name, value in variables.items()),
        textwrap.dedent(code),
        "print(found)",
    ]
    command = [sys.executable, "-c", "\n".join(lines), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)  # noqa: S307


def one_trace(keeps: bool) -> str:
    """One trace in every manner that a researcher has; `keeps` forgets nothing, as a leak would."""
    keep = "kept.extend([stream, logits, cache, point])" if keeps else "pass"
    return f"""
        kept = []
        vector = torch.zeros(model.hidden_size, requires_grad=True)

        def once(number):
            ids = torch.randint(3, model.vocab_size, (1, 64))
            with model.trace(ids) as tracer:
                cache = tracer.cache(values="layers.*.self_attn.attention_probabilities")
                point = tracer.point("layers.1.layer_output")
                stream = model.layers[2].layer_output.save()
                model.layers[3].mlp.mlp_output[:, -1] *= 0.5
                logits = model.logits.save()
            with model.trace(start_from=point.repeat(2)):
                model.logits[:, -1].save()
            try:
                with model.trace(ids):
                    model.layers[0].layer_output.save()
                    raise KeyError
            except KeyError:
                pass
            with model.trace(ids):
                model.layers[0].layer_output[:, -1] += vector
                model.logits[0, -1, 3].backward()
            with model.generate(ids, max_new_tokens=2, do_sample=False) as tracer:
                for _ in tracer.iter[:]:
                    model.layers[1].layer_output.save()
            {keep}

        for number in range(40):
            once(number)
        before = resident()
        for number in range(runs):
            once(number)
        found = {{"grown": resident() - before}}
    """


@pytest.mark.parametrize("name", ["mqa", "gemma4_e2b"])
def test_a_thousand_traces_leave_memory_where_it_was(zoo, name):
    """250 times five traces; and the same with a leak, to see that one would be found."""
    assert measured(zoo.folder(name), one_trace(keeps=False), runs=250)["grown"] < 4 * MIB
    assert measured(zoo.folder(name), one_trace(keeps=True), runs=60)["grown"] > 8 * MIB


LONG = """
    ids = torch.randint(3, model.vocab_size, (1, 2048))
    with model.trace(ids[:, :64]):
        model.logits[:, -1].save()
    before = resident("VmHWM")
    with model.trace(ids):
        saved = [model.layers[i].layer_output.save() for i in layers]
        model.logits[:, -1].save()
    found = {"peak": resident("VmHWM") - before, "stream": saved[-1].nbytes}
"""


def test_one_value_of_a_long_prompt_holds_no_other_layer(tmp_path):
    """A trace that saves one layer's output of 2,048 tokens; one that saves all of them needs that much more."""
    sizes = dict(
        hidden_size=1024, intermediate_size=32, num_hidden_layers=24, num_attention_heads=1, num_key_value_heads=1
    )
    config = transformers.Gemma3TextConfig(vocab_size=64, head_dim=8, sliding_window=512, **sizes)
    transformers.Gemma3ForCausalLM(config).save_pretrained(tmp_path)
    one = measured(tmp_path, LONG, layers=[3])
    every = measured(tmp_path, LONG, layers=list(range(24)))
    streams = one["stream"] * 23
    assert every["peak"] - one["peak"] > 0.5 * streams > 90 * MIB
