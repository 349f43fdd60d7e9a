"""Figures, tables, and the page of an attention pattern."""

import base64
import html
import importlib
import json
import re
import sys

import numpy
import pytest
import torch

import gemloupe
from conftest import Checkpoint
from gemloupe.display import attention_pattern, plot_topk_tokens, prompts_to_df
from gemloupe.prompt_utils import Prompt


@pytest.fixture(scope="module")
def checkpoint(zoo):
    return Checkpoint(zoo, "mqa", "float32")


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return checkpoint.model().tokenizer


def some_probs(*shape):
    return torch.randn(*shape, 393, generator=torch.Generator().manual_seed(0)).softmax(-1)


# ------------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("shape", [(4, 6), (6,), ()])
def test_a_figure_shows_the_likeliest_tokens(tokenizer, shape):
    pytest.importorskip("plotly")
    probs = some_probs(*shape)
    figure = plot_topk_tokens(probs, tokenizer, k=3, title="Here")
    probs = probs.reshape(-1, *probs.shape[-2:]) if probs.ndim > 1 else probs[None, None]
    assert len(figure.data) == len(probs) and figure.layout.title.text == "Here"
    for heatmap, layers in zip(figure.data, probs, strict=True):
        best = layers.topk(3)
        numpy.testing.assert_allclose(numpy.array(heatmap.z), best.values)
        names = [[html.unescape(name) for name in row] for row in heatmap.text]
        assert names == [[repr(tokenizer.convert_ids_to_tokens(i)) for i in row] for row in best.indices.tolist()]
        assert f"ID: {best.indices[0, 0]}<br>" in heatmap.hovertext[0][0]
    assert figure.layout.width == 400 * min(3, len(probs)) and figure.layout.height == 300 * -(-len(probs) // 3)


def test_the_texts_of_a_figure_are_no_html(tokenizer):
    pytest.importorskip("plotly")
    probs = torch.zeros(393)
    probs[tokenizer.bos_token_id] = 1
    (heatmap,) = plot_topk_tokens(probs, tokenizer, k=1).data
    assert heatmap.text[0][0] == "'&lt;bos&gt;'"


def test_rows_of_the_head_that_no_token_has(tokenizer):
    pytest.importorskip("plotly")
    probs = torch.zeros(1000)
    probs[990] = 1
    (heatmap,) = plot_topk_tokens(probs, tokenizer, k=1).data
    assert heatmap.text[0][0] == "'id 990'"
    for figure in (plot_topk_tokens(probs, tokenizer, k=1, use_token_ids=True), plot_topk_tokens(probs, None, k=1)):
        assert figure.data[0].text[0][0] == 990


def test_a_figure_is_saved_and_not_opened(tokenizer, tmp_path, monkeypatch):
    graphs = pytest.importorskip("plotly.graph_objects")
    shown, written = [], []
    monkeypatch.setattr(graphs.Figure, "show", lambda figure: shown.append(figure))
    monkeypatch.setattr(graphs.Figure, "write_image", lambda figure, path, scale: written.append(path.name))
    monkeypatch.setitem(sys.modules, "kaleido", sys)
    plot_topk_tokens(some_probs(2), tokenizer, file=str(tmp_path / "page.html"))
    plot_topk_tokens(some_probs(2), tokenizer, file=tmp_path / "picture.png")
    plot_topk_tokens(some_probs(2), tokenizer, file=tmp_path / "alone.svg", save_html=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "picture.html"]
    assert written == ["picture.png", "alone.svg"] and not shown
    plot_topk_tokens(some_probs(2), tokenizer, show=True)
    assert len(shown) == 1


def test_what_a_figure_refuses(tokenizer, tmp_path):
    pytest.importorskip("plotly")
    for probs in (some_probs(1, 1, 1), some_probs(0, 3), torch.tensor(1.0)):
        with pytest.raises(gemloupe.BadValue):
            plot_topk_tokens(probs, tokenizer)
    for options in (dict(k=0), dict(k=394), dict(file=tmp_path / "nothing")):
        with pytest.raises(gemloupe.BadOption):
            plot_topk_tokens(some_probs(2), tokenizer, **options)


def test_a_table_of_prompts(tokenizer):
    pandas = pytest.importorskip("pandas")
    prompts = [
        Prompt("a", {"one": [2, 999], "two": [3]}, {"one": "<bos>", "two": ["x", "y"]}),
        Prompt("b", {"one": [1]}),
    ]
    table = prompts_to_df(prompts)
    assert isinstance(table, pandas.DataFrame)
    assert table[0].to_dict() == {"prompt": "a", "one_string": "<bos>", "two_string": ["x", "y"]}
    assert table[1].to_dict() == {"prompt": "b", "one_string": None, "two_string": None}
    table = prompts_to_df(prompts, tokenizer)
    assert table[0]["one_tokens"] == ["<bos>", "id 999"] and table[1]["two_tokens"] is None
    assert prompts_to_df([]).empty


@pytest.mark.parametrize("package", ["plotly", "pandas"])
def test_a_package_that_is_missing(tokenizer, monkeypatch, package):
    """The message names the extra; the module can be imported without."""
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    importlib.reload(sys.modules["gemloupe.display"])
    draw = {"plotly": lambda: plot_topk_tokens(some_probs(2), tokenizer), "pandas": lambda: prompts_to_df([])}
    with pytest.raises(ImportError, match=rf"{package}, .*pip install 'gemloupe\[display\]'"):
        draw[package]()


# ------------------------------------------------------------------------------------------------------ the attention


def read_page(page: str) -> dict:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


@pytest.mark.parametrize("name", ["mqa", "gemma2", "minimal"])
def test_the_page_has_every_pattern(zoo, name):
    checkpoint = Checkpoint(zoo, name, "float32")
    model, ids = checkpoint.model(), checkpoint.ids(9)
    captured = checkpoint.reference().capture(ids)
    found = attention_pattern(model, ids)
    data = read_page(found.to_html())
    assert [layer["layer"] for layer in data["layers"]] == list(range(model.num_layers))
    for number, layer in enumerate(data["layers"]):
        expected = captured[f"layers.{number}.self_attn.attention_probabilities"][0]
        assert torch.equal(found.patterns[number], expected)
        steps = numpy.frombuffer(base64.b64decode(layer["data"]), "<u2").reshape(layer["heads"], 9, 9)
        assert numpy.abs(steps / 65535 - expected.numpy()).max() < 1e-5
    assert data["tokens"] == found.tokens and len(found.tokens) == 9
    assert found.tokens[0] == ("id 2" if name == "minimal" else "<bos>")


def test_tokens_cannot_break_the_page(checkpoint):
    model = checkpoint.model()
    text = "</script><b>&'\"`\\ é 中 \n <!--"
    found = attention_pattern(model, text, layers=[-1, 0])
    page = found.to_html()
    assert found.layers == [model.num_layers - 1, 0]
    assert "".join(found.tokens).replace("▁", " ") == "<bos>" + text
    (data,) = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert not set("<>&") & set(data)
    assert read_page(page)["tokens"] == found.tokens
    assert page.count("</script>") == 2 and "innerHTML" not in page


def test_the_page_needs_no_network(checkpoint):
    page = attention_pattern(checkpoint.model(), "the city").to_html()
    assert "default-src 'none'" in page
    assert not re.findall(r"https?:|\bsrc=|@import|url\(|fetch\(|<link", page)


def test_the_page_in_a_notebook_and_in_a_file(checkpoint, tmp_path):
    found = attention_pattern(checkpoint.model(), "the city")
    (inside,) = re.findall(r'<iframe srcdoc="([^"]*)"', found._repr_html_())
    assert html.unescape(inside) == found.to_html()
    path = found.save(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == found.to_html()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert "tokens" in repr(found)
    for nowhere in (tmp_path / "none" / "page.html", tmp_path):
        with pytest.raises(gemloupe.CannotWrite):
            found.save(nowhere)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_padding_is_not_shown(checkpoint):
    model = checkpoint.model()
    ids, mask = checkpoint.padded((5, 9))
    found = attention_pattern(model, {"input_ids": ids[:1], "attention_mask": mask[:1]})
    alone = attention_pattern(model, ids[:1, 4:])
    assert found.tokens == alone.tokens
    for pattern, expected in zip(found.patterns, alone.patterns, strict=True):
        torch.testing.assert_close(pattern, expected, atol=1e-5, rtol=0)


def test_what_the_page_refuses(checkpoint):
    model = checkpoint.model()
    with pytest.raises(gemloupe.BadPrompt, match="one prompt"):
        attention_pattern(model, ["a", "b"])
    with pytest.raises(gemloupe.BadOption):
        attention_pattern(model, "a", layers=[99])
