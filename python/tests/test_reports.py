"""model.support() and print(model) from Python; what they say is tested in tests/report and test_cli.py."""

import pytest


@pytest.fixture(scope="module")
def support(zoo):
    return zoo.model("mqa").support()


def test_support_as_text_and_data(zoo, support):
    assert str(support) == support.to_text()
    listed = {entry["value"] for host in support.to_json()["values"].values() for entry in host}
    assert listed == {row.value_name for row in zoo.model("mqa")._row_table if row.value_name}
    assert all(name in support.to_text() for name in listed)
    assert max(map(len, support.to_text(60).splitlines())) < max(map(len, support.to_text(200).splitlines()))


def test_a_notebook_gets_a_part_of_a_page(support):
    assert support.to_html().startswith("<!doctype html>")
    shown = support._repr_html_()
    assert "attention_queries" in shown
    assert not any(tag in shown for tag in ("<!doctype", "<html", "<head", "<body"))


def test_printing_a_model_shows_its_tree(zoo):
    lines = repr(zoo.model("mqa")).splitlines()
    assert lines[0] == "Gemma3ForCausalLM("
    assert "    (0-7): 8 x Gemma3DecoderLayer(" in lines
