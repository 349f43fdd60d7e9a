"""How the tests read gemloupe's values by name, and how they report what differs."""

import torch

from reference.bits import assert_equal_bits
from reference.capture import real_rows

PORTS = (".input", ".inputs", ".output")


def standard(captured: dict) -> dict:
    """The standard values of a capture, without the modules' ports."""
    return {name: value for name, value in captured.items() if not name.endswith(PORTS)}


def prompt(ids, mask=None):
    return ids if mask is None else {"input_ids": ids, "attention_mask": mask}


def encoded(model, texts):
    """Ids and mask as the tokenizer pads them, not as the library does."""
    rows = model.tokenizer(texts, return_tensors="pt", padding=True)
    return rows["input_ids"], rows["attention_mask"]


def module_at(model, path: str):
    """A module by its path, "layers.3.self_attn.q_proj"."""
    for part in path.split("."):
        model = model[int(part)] if part.isdigit() else getattr(model, part)
    return model


def is_tuple(name: str) -> bool:
    """The ports that are no single tensor have no name of their own: they are a module's attribute."""
    return name.endswith((".inputs", ".self_attn.output", ".router.output"))


def read(model, tracer, name: str):
    path, _, last = name.rpartition(".")
    return getattr(module_at(model, path), last) if is_tuple(name) else tracer.read(name)


def write(model, tracer, name: str, value):
    path, _, last = name.rpartition(".")
    if is_tuple(name):
        setattr(module_at(model, path), last, value)
    else:
        tracer.write(name, value)


def saved(value):
    if isinstance(value, (tuple, list)):
        return tuple(saved(item) for item in value)
    if isinstance(value, dict):
        return {key: saved(item) for key, item in value.items()}
    return None if value is None else value.save()


def read_all(model, names, ids, mask=None) -> dict:
    """Values and ports in one trace, in the order given."""
    with model.trace(prompt(ids, mask)) as tracer:
        values = {name: saved(read(model, tracer, name)) for name in names}
    return values


def logits_of(model, ids, mask=None) -> torch.Tensor:
    with model.trace(prompt(ids, mask)):
        logits = model.logits.save()
    return logits


def differences(found: dict, expected: dict, compare=assert_equal_bits) -> list[str]:
    """One line for each name whose values differ, in the order in which a run computes them."""
    lines = []
    for name, value in expected.items():
        try:
            compare(found[name], value, name)
        except AssertionError as error:
            lines.append(str(error).strip().splitlines()[0])
    return lines


def assert_all_equal(found: dict, expected: dict, compare=assert_equal_bits):
    lines = differences(found, expected, compare)
    shown = "\n".join(lines[:8])
    assert not lines, f"{len(lines)} of {len(expected)} values differ; the first ones a run computes:\n{shown}"


def within(bound: float):
    """A comparison that allows `bound` on floating point tensors and nothing elsewhere."""

    def compare(found, expected, name):
        if isinstance(expected, (tuple, dict)):
            keys = range(len(expected)) if isinstance(expected, tuple) else expected.keys()
            assert len(found) == len(expected), f"{name}: expected {len(expected)} elements, found {len(found)}"
            for key in keys:
                compare(found[key], expected[key], f"{name}[{key!r}]")
        elif isinstance(expected, torch.Tensor) and expected.is_floating_point() and found is not None:
            assert found.dtype == expected.dtype, f"{name}: expected {expected.dtype}, found {found.dtype}"
            assert found.shape == expected.shape, f"{name}: expected {expected.shape}, found {found.shape}"
            worst = (found - expected).abs().max().item() if expected.numel() else 0.0
            assert worst <= bound, f"{name}: differs by {worst:.3g}, more than {bound:.3g}"
        else:
            assert_equal_bits(found, expected, name)

    return compare


def as_exact(exact: dict, bound: float = 1e-4, times: float = 4):
    """A comparison that allows `bound`, or where rounding is amplified `times` the error that the reference has itself."""

    def error(tensor, name):
        return (tensor.double() - exact[name]).abs().max().item()

    def compare(found, expected, name):
        if not (isinstance(expected, torch.Tensor) and expected.is_floating_point()):
            return within(bound)(found, expected, name)
        ours, theirs = error(found, name), error(expected, name)
        assert ours <= max(bound, times * theirs), f"{name}: errs by {ours:.3g}, and the reference by {theirs:.3g}"

    return compare


def assert_walk_equal(checkpoint, ids):
    """Every value and port of the plan has the reference's bits, and the reference knows every one of them."""
    expected = checkpoint.reference().capture(ids)
    missing = set(checkpoint.model().value_names()) - set(expected)
    assert not missing
    assert_all_equal(read_all(checkpoint.model(), expected, ids), expected)


def assert_padded_batch_equal(checkpoint):
    """Every standard value of a batch padded on the left, where its tokens are real."""
    ids, mask = checkpoint.padded()
    expected = standard(checkpoint.reference().capture(ids, mask))
    found = read_all(checkpoint.model(), expected, ids, mask)
    rows = {name: real_rows(name, tensor, mask) for name, tensor in found.items()}
    assert_all_equal(rows, {name: real_rows(name, tensor, mask) for name, tensor in expected.items()})
