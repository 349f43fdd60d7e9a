"""The bench's own arithmetic: what is compared, what a row's limit is, and which rows count as lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import checkpoints  # noqa: E402
import growth  # noqa: E402
import guard  # noqa: E402
import limits  # noqa: E402
import measures  # noqa: E402
import report  # noqa: E402
import sampling  # noqa: E402


def a_result(name: str, compare: str, value: float | None, quiet: bool = True, **sides: dict) -> dict:
    ours = {"label": "o", "seconds": 1.0, "quiet": quiet}
    theirs = {"label": "t", "seconds": 2.0, "quiet": True}
    about = {"name": name, "title": name, "target": 1.0, "met": True, "work": None}
    return about | {"compare": compare, "value": value, "ours": ours, "theirs": theirs} | sides


def test_names_are_unique_and_targets_are_as_the_comparison_reads_them():
    rows = measures.all_measures()
    assert len({row.name for row in rows}) == len(rows)
    assert all(0 < row.target <= 1.1 for row in rows if row.compare == "ratio")
    assert all(row.target >= 0.8 for row in rows if row.compare == "speedup" and row.target is not None)


@pytest.mark.parametrize(
    ("compare", "value", "expected"),
    [("speedup", 2.0, 2.0), ("ratio", 0.5, 2.0), ("share", -0.5, 2.0), ("added", 9, 2.0)],
)
def test_an_advantage_is_more_where_we_are_better(compare, value, expected):
    assert guard.advantage(a_result("a", compare, value)) == pytest.approx(expected)


def test_what_says_nothing_has_no_advantage():
    assert guard.advantage(a_result("a", "speedup", None)) is None
    assert guard.advantage(a_result("a", "speedup", 2.0, quiet=False)) is None
    assert guard.advantage(a_result("a", "added", 0.1, ours={"seconds": 1.0, "bare": 0.9, "quiet": True})) is None


def test_the_guard_names_rows_that_lost():
    before, now = {"a": 2.0, "b": 2.0, "c": 1.0, "d": 1.0}, {"a": 1.8, "b": 1.6, "c": 1.5, "e": 1.0}
    verdict = guard.compare(before, now, 0.15)
    assert [line.split(":")[0] for line in verdict.lost] == ["b"]
    assert [line.split(":")[0] for line in verdict.gained] == ["c"]
    assert (verdict.silent, verdict.new) == (["d"], ["e"])
    assert guard.report(verdict, len(before)) == 1
    assert guard.report(guard.compare(before, before, 0.15), len(before)) == 0


def test_pairs_that_a_window_lets_see():
    for tokens in (1, 5, 12):
        for window in (None, 1, 4, 20):
            pairs = sum(1 for q in range(tokens) for k in range(q + 1) if window is None or q - k < window)
            assert limits.seen(tokens, window) == pairs


def test_parameters_are_those_of_the_checkpoint():
    for config in (checkpoints.GEMMA3_1B, checkpoints.GEMMA2_2B):
        shapes = [shape for _, shape in checkpoints.gemma_tensors(config) if len(shape) == 2]
        blocks = sum(a * b for a, b in shapes) - config["vocab_size"] * config["hidden_size"]
        assert config["num_hidden_layers"] * limits.block_parameters(config) == blocks


def test_windows_follow_the_patterns():
    assert [window is None for window in limits.windows(checkpoints.GEMMA3_1B)][:7] == [False] * 5 + [True, False]
    assert [window is None for window in limits.windows(checkpoints.GEMMA2_2B)][:4] == [False, True, False, True]


def test_answers_agree():
    ours, theirs = {"some": [0.0, 1.0], "tokens": [1, 2]}, {"some": [0.0, 1.01], "tokens": [1]}
    assert sampling.agreement(ours, theirs, None) == {"same_answer": True}
    assert sampling.agreement(ours, theirs, 0.02)["same_answer"]
    assert not sampling.agreement(ours, theirs, 0.001)["same_answer"]
    assert not sampling.agreement(ours, {"tokens": [3]}, 0.02)["same_answer"]


def test_a_ratio_is_written_with_its_target():
    line = report.plain_line(a_result("a", "ratio", 0.5))
    assert "0.50×" in line and "≤ 1.0×" in line


def test_the_slope_of_a_power_is_its_exponent():
    assert growth.slope([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert growth.slope([16, 64, 512], [5, 5, 5]) == pytest.approx(0)
