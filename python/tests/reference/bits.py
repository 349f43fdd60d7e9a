"""Comparing tensors bit for bit, and saying where they part."""

import torch

INTEGERS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def ordered_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the floats, one apart where the floats are neighbours."""
    bits = tensor.contiguous().view(INTEGERS[tensor.dtype]).long()
    sign = 1 << (8 * tensor.element_size() - 1)
    return torch.where(bits < 0, -(bits + sign), bits)


def assert_equal_bits(found, expected, name: str = "value"):
    """Tensors, or tuples and dicts of them, of one structure, dtype and shape and with the same bits."""
    if isinstance(expected, (tuple, list)):
        assert isinstance(found, (tuple, list)), f"{name}: expected a tuple, found {type(found).__name__}"
        assert len(found) == len(expected), f"{name}: expected {len(expected)} elements, found {len(found)}"
        for index, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_equal_bits(a, b, f"{name}[{index}]")
        return
    if isinstance(expected, dict):
        assert list(found) == list(expected), f"{name}: expected the keys {list(expected)}, found {list(found)}"
        for key in expected:
            assert_equal_bits(found[key], expected[key], f"{name}[{key!r}]")
        return
    if not isinstance(expected, torch.Tensor):
        assert found == expected, f"{name}: expected {expected!r}, found {found!r}"
        return
    assert isinstance(found, torch.Tensor), f"{name}: expected a tensor, found {type(found).__name__}"
    assert found.dtype == expected.dtype, f"{name}: expected {expected.dtype}, found {found.dtype}"
    assert found.shape == expected.shape, f"{name}: expected {tuple(expected.shape)}, found {tuple(found.shape)}"
    difference = describe_difference(found.detach(), expected.detach())
    assert difference is None, f"{name}: {difference}"


def describe_difference(found: torch.Tensor, expected: torch.Tensor) -> str | None:
    """None where every bit is equal."""
    if expected.dtype not in INTEGERS:
        unequal = found != expected
        ulps = None
    else:
        ulps = ordered_bits(found) - ordered_bits(expected)
        unequal = found.contiguous().view(INTEGERS[found.dtype]) != expected.contiguous().view(INTEGERS[found.dtype])
    if not unequal.any():
        return None
    first = tuple(unequal.nonzero()[0].tolist())
    text = f"{int(unequal.sum())} of {unequal.numel()} elements differ, first at {list(first)}: "
    text += f"found {found[first].item()!r}, expected {expected[first].item()!r}"
    if ulps is None:
        return text
    worst = (found.double() - expected.double()).abs().max().item()
    return f"{text}; largest difference {worst:.3g}, {int(ulps.abs().max())} ulps"
