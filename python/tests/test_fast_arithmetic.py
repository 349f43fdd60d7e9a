"""The default arithmetic: our own kernels, whose values are the reference's up to rounding."""

import subprocess
import sys

import pytest
import torch

import gemloupe
from conftest import Checkpoint
from helpers import as_exact, assert_all_equal, logits_of, read_all, standard
from reference import checkpoints
from reference.bits import assert_equal_bits

EVERY = [*checkpoints.NAMES, *checkpoints.OTHER_FAMILIES]
ISAS = ["portable", "avx2", "avx512", "avx512_bf16"]


def ulps_of_the_largest(bound: float):
    """A comparison in units in the last place that the expected tensor's largest finite element has in bfloat16."""

    def compare(found, expected, name):
        if not expected.is_floating_point():
            return assert_equal_bits(found, expected, name)
        open_ = expected.abs() < 1e30  # a mask's lowest number is no value
        assert torch.equal(found.abs() < 1e30, open_), name
        largest = expected[open_].abs().max().float() if open_.any() else torch.tensor(1.0)
        unit = torch.exp2(torch.floor(torch.log2(largest)) - 7)
        worst = (found.float() - expected.float())[open_].abs().max() / unit if open_.any() else 0.0
        assert worst <= bound, f"{name}: differs by {worst:.2f} units in the last place of its largest element"

    return compare


@pytest.mark.parametrize("name", EVERY)
def test_bfloat16_value_by_value(zoo, name):
    """Each value from the reference's own of the step before it, so that no rounding hides another's."""
    checkpoint = Checkpoint(zoo, name, "bfloat16")
    ids, model = checkpoint.ids(14, seed=14), checkpoint.model(None)
    captured = standard(checkpoint.reference().capture(ids))
    found = {}
    with model.trace(ids) as tracer:
        for value in (name for name in model.value_names() if name in captured):
            tensor = tracer.read(value)
            found[value] = tensor.clone()
            if tensor.is_floating_point() and value != "next_token_probs":
                tracer.write(value, captured[value])
    assert len(found) > 10 * model.num_layers
    assert_all_equal(found, {name: captured[name] for name in found}, ulps_of_the_largest(2))


@pytest.mark.parametrize("name", EVERY)
def test_float32_weights_that_stay_bfloat16(zoo, name):
    """A float32 run of a bfloat16 checkpoint errs as little as one of widened weights, and shows weights as float32."""
    folder, ids = zoo.folder(name, "bfloat16"), Checkpoint(zoo, name, "bfloat16").ids(20)
    mapped = gemloupe.StandardizedTransformer(folder, dtype="float32")
    wide = gemloupe.StandardizedTransformer(folder, dtype="float32", attn_implementation="eager")
    exact = zoo.exact(name, "bfloat16")
    names = ["layers.0.layer_output", f"layers.{wide.num_layers - 1}.layer_output", "logits"]
    expected = read_all(wide, names, ids)
    assert_all_equal(read_all(mapped, names, ids), expected, as_exact(read_all(exact, names, ids)))
    weight = mapped.model.layers[0].mlp.down_proj._module.weight
    assert_equal_bits(weight, wide.model.layers[0].mlp.down_proj._module.weight, "down_proj")
    before = logits_of(mapped, ids)
    weight[:] = 0
    assert not torch.equal(logits_of(mapped, ids), before)


@pytest.mark.parametrize("isa", ISAS)
def test_each_set_of_instructions(zoo, isa):
    """Forced by the environment, in a process of its own."""
    program = """
import sys, torch, gemloupe
for dtype in ("float32", "bfloat16"):
    model = gemloupe.StandardizedTransformer(sys.argv[1], dtype=dtype)
    torch.save(model(torch.tensor([[2, 5, 9, 33, 7, 20, 21, 22]])), sys.argv[2] + dtype)
"""
    folder = zoo.folder("mqa", "float32")
    out = zoo.root / f"isa-{isa}-"
    run = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(out)],
        env={"PATH": "/usr/bin:/bin", "GEMLOUPE_ISA": isa},
        capture_output=True,
        text=True,
    )
    if "this machine runs" in run.stderr:
        assert isa not in run.stderr.split("this machine runs")[1]
        pytest.skip(f"this machine has no {isa}")
    assert run.returncode == 0, run.stderr
    ids = torch.tensor([[2, 5, 9, 33, 7, 20, 21, 22]])
    exact = zoo.exact("mqa", "float32")(ids)
    for dtype, bound in (("float32", 1e-4), ("bfloat16", 0.5)):
        assert (torch.load(f"{out}{dtype}").double() - exact).abs().max() < bound
