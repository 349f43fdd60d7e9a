"""The documentation is true: its Python runs, its errors are raised as printed, its links lead somewhere."""

import ast
import importlib.util
import inspect
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import gemloupe
from gemloupe import StandardizedTransformer

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "docs" / "errors"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ERROR_PAGES = [page for page in PAGES if page.parent == ERRORS and page.name != "README.md"]
TUTORIAL = ROOT / "docs" / "tutorial.md"
MODELS = ("google/gemma-3-270m", "google/gemma-3-270m-it")  # what the pages load; here a tiny checkpoint
#: A text that has as many tokens as "The Eiffel Tower is in" in the tiny checkpoint's vocabulary as well.
TINY_TEXTS = {"The Colosseum is in": "The Colosseumab is in"}

PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@dataclass(frozen=True)
class Block:
    heading: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, each with the heading it stands under."""
    heading, found = "", []
    for part in re.split(r"^(```\w+\n.*?^```)$", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE):
        if fenced := re.fullmatch(r"```(\w+)\n(.*)```", part, re.DOTALL):
            found.append(Block(heading, fenced[1], fenced[2]))
        elif headings := re.findall(r"^#+ (.+)$", part, re.MULTILINE):
            heading = headings[-1]
    return found


def python_of(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


@pytest.fixture
def folder(zoo, tmp_path, monkeypatch):
    """Where the snippets run: a checkpoint in shards, a fine-tune with a key of its own, an empty hub cache."""
    base = shutil.copytree(zoo.folder("deep", variant="sharded"), tmp_path / "gemma-3-270m")
    config = json.loads((base / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    tuned = shutil.copytree(zoo.folder("deep"), tmp_path / "my-finetune")
    config = json.loads((tuned / "config.json").read_text())
    (tuned / "config.json").write_text(json.dumps(config | {"corpus_name": "tales"}))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / ".cache" / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def execute(code: str, namespace: dict, checkpoint: Path) -> dict:
    """Runs a snippet in a namespace, with `checkpoint` in the place of Gemma 3 270M."""
    for model in MODELS:
        code = code.replace(f'"{model}"', repr(str(checkpoint)))
    exec(compile(code, "example.py", "exec"), namespace)
    return namespace


@pytest.fixture
def run(zoo, folder):
    """Runs a snippet in a namespace, on the tiny checkpoint."""

    def run(code: str, namespace: dict) -> dict:
        for text, tiny in TINY_TEXTS.items():
            code = code.replace(text, tiny)
        return execute(code, namespace, zoo.folder("deep"))

    return run


# ------------------------------------------------------------------------------------------------ snippets


SNIPPETS = ["README.md", "docs/tutorial.md", "docs/values.md", "docs/interventions.md", "docs/coming-from.md"]


@pytest.mark.parametrize("page", SNIPPETS)
def test_the_snippets_of_a_page_run(run, page):
    """In order, in one namespace."""
    snippets, namespace = python_of(ROOT / page), {}
    assert len(snippets) >= 5
    for snippet in snippets:
        run(snippet.text, namespace)


def test_the_examples_of_the_readme_do_something(run):
    namespace = {}
    for snippet in python_of(ROOT / "README.md")[:3]:
        run(snippet.text, namespace)
    model, prompt = namespace["model"], namespace["prompt"]
    with model.trace(prompt):
        clean = model.next_token_probs.save()
    for name in ("probs", "patched"):
        assert namespace[name].shape == clean.shape and not torch.equal(namespace[name], clean), name


# ----------------------------------------------------------------------------------------------- the real model

DECIMAL = re.compile(r" *(?<![\w.])[+-]?\d+\.\d+(?![\w.])")


def real_model() -> Path:
    """What `make demo` fetches, whether it is there or not."""
    spec = importlib.util.spec_from_file_location("demo_model", ROOT / "tools" / "demo_model.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.model_path()


def alike(shown: str, printed: str) -> bool:
    """One line, but for one in the last digit of a decimal number and the spaces before it."""
    texts = [DECIMAL.sub("#", line).rstrip() for line in (shown, printed)]
    numbers = zip(DECIMAL.findall(shown), DECIMAL.findall(printed), strict=False)
    return texts[0] == texts[1] and all(
        abs(float(a) - float(b)) < 1.5 * 10 ** -len(a.partition(".")[2]) for a, b in numbers
    )


def check_shown(shown: str, printed: str) -> None:
    """All lines are alike; `...` stands for any number of them."""
    rest, skipping = printed.splitlines(), False
    for line in shown.splitlines():
        if line.strip() == "...":
            skipping = True
            continue
        while skipping and rest and not alike(line, rest[0]):
            rest.pop(0)
        assert rest and alike(line, rest[0]), f"shown: {line}\nprinted: {rest[0] if rest else 'nothing'}"
        rest, skipping = rest[1:], False
    assert skipping or not rest, rest


@pytest.mark.skipif(not real_model().exists(), reason="Gemma 3 270M is not in the cache; `make demo` fetches it")
def test_the_tutorial_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    """On the real model: a text block is what the Python block before it prints."""
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block, following in itertools.pairwise([*blocks(TUTORIAL), Block("", "", "")]):
        if block.language != "python":
            continue
        execute(block.text, namespace, real_model())
        check_shown(following.text if following.language == "text" else "", capsys.readouterr().out)


def test_what_is_shown_is_compared():
    check_shown("a 0.50\n  ...\n b [3]\n", "a  0.51\nb [3]\nd\n b [3]\n")
    wrong = {"0.50": "0.52", "3": "4", "a\nb": "a", "a": "a\nb", "a\n...\nc": "a\nb", "": "a"}
    for shown, printed in wrong.items():
        with pytest.raises(AssertionError):
            check_shown(shown, printed)


# ------------------------------------------------------------------------------------------------ errors


def comparable(message: str) -> str:
    """A message without what depends on the model and the machine: numbers and folders."""
    message = re.sub(r"(?<![\w.])/(?:[^\s/'\"]+/)+", "", message)
    return re.sub(r"\d+", "#", " ".join(message.split()))


def symptom(page: Path) -> str | None:
    return next((block.text for block in blocks(page) if block.heading == "Symptom"), None)


@pytest.mark.parametrize("page", ERROR_PAGES, ids=lambda page: page.stem)
def test_an_error_s_page(run, page):
    """Wrong code raises the error with the message that the page shows, right code raises nothing."""
    assert page.read_text(encoding="utf-8").startswith(f"# {page.stem}\n")
    (setup,) = python_of(ERRORS / "README.md")
    kinds = {kind.slug: kind for kind in vars(gemloupe.errors).values() if hasattr(kind, "slug")}
    for block in python_of(page):
        assert block.heading in ("Wrong", "Right"), block.text
        namespace = run(setup.text, {})
        if block.heading == "Right":
            run(block.text, namespace)
            continue
        kind = kinds[page.stem]
        with pytest.raises(kind) as raised:
            run(block.text, namespace)
        assert comparable(symptom(page)) == comparable(f"gemloupe.errors.{kind.__name__}: {raised.value}")


def test_the_index_of_errors():
    index = (ERRORS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \| `(\w+)` \|([^|]*)\|", index, re.MULTILINE)
    assert sorted(slug for slug, _, _ in listed) == sorted(page.stem for page in ERROR_PAGES)
    for slug, name, bases in listed:
        if slug == "interrupted":
            continue
        kind = getattr(gemloupe, name)
        assert kind.slug == slug
        assert [base.__name__ for base in kind.__bases__[1:]] == re.findall(r"`(\w+)`", bases), name


# ------------------------------------------------------------------------------------------------ completeness


def test_every_option_of_loading_is_documented():
    text = (ROOT / "docs" / "values.md").read_text(encoding="utf-8")
    section = text.split("## Loading\n")[1].split("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", section, re.MULTILINE))
    parameters = inspect.signature(StandardizedTransformer.__init__).parameters
    assert set(documented) == set(parameters) - {"self", "path_or_id"}
    for name, default in documented.items():
        assert ast.literal_eval(default) == parameters[name].default, name


def test_every_family_is_documented(folder):
    (folder / "gemma-3-270m" / "config.json").write_text('{"model_type": "none"}')
    with pytest.raises(gemloupe.BadConfig) as raised:
        StandardizedTransformer("gemma-3-270m")
    families = re.findall(r"'(\w+)'", str(raised.value).split("it has")[1])
    text = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    columns = re.findall(r"^\|[^|]*\|([^|]*)\|.*\| there\b.* \|$", text, re.MULTILINE)
    assert sorted(families) == sorted(re.findall(r"`(\w+)`", " ".join(columns)))


def test_every_value_is_documented(zoo):
    text = (ROOT / "docs" / "values.md").read_text(encoding="utf-8").split("## The values\n")[1]
    rows = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", text, re.MULTILINE))
    models = [StandardizedTransformer(zoo.folder(name)) for name in ("mqa", "gemma4_e2b", "gemma4_moe")]
    axes = {row.value_name: row.axes for model in models for row in model._core.plan.rows if row.is_value}
    for model in models:
        assert {name.rsplit(".", 1)[-1] for name in model.value_names()} <= set(axes)
    assert {name: documented.split() for name, documented in rows.items()} == axes


def test_the_order_of_a_run_is_the_plan_s(zoo):
    text = (ROOT / "docs" / "values.md").read_text(encoding="utf-8")
    section = text.split("## The order of a run\n")[1].split("\n`input_size` can")[0]
    lines = [re.findall(r"`(\w+)`", line) for line in section.splitlines() if re.match(r"\s*\d+\. `", line)]
    model = StandardizedTransformer(zoo.folder("mqa"))
    position = {}
    for row in model._core.plan.rows:
        if row.is_value and row.layer in (-1, 1):
            position[row.value_name] = row.position
    documented = [[name for name in line if name in position] for line in lines]
    documented[documented.index(["layer_input", "layer_output"])].remove("layer_output")  # the previous block's
    assert sorted(name for line in documented for name in line) == sorted(set(position) - {"input_size"})
    for line in documented:
        assert len({position[name] for name in line}) == 1, line
    places = [position[line[0]] for line in documented]
    assert places == sorted(set(places))


def tool() -> Path | None:
    program = Path(sys.executable).parent / "gemloupe"
    return program if program.exists() else None


@pytest.mark.skipif(tool() is None, reason="the command line is not built")
def test_the_command_line_s_page_has_every_option():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    def help_of(*command) -> str:
        return subprocess.run([tool(), *command, "--help"], capture_output=True, text=True, check=True).stdout

    whole = help_of()
    commands = re.findall(r"^  (\w+) {2,}", whole.split("Subcommands:\n")[1], re.MULTILINE)
    assert sorted(commands) == sorted(re.findall(r"^\| `(\w+) MODEL", text, re.MULTILINE))
    offered = set()
    for text_of_help in [whole, *map(help_of, commands)]:
        offered |= set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", text_of_help, re.MULTILINE))
    assert offered - {"--help"} == set(
        re.findall(r"`(?:-\w`, `)?(--[\w-]+)", text.split("## Options")[1].split("\n## ")[0])
    )


# ------------------------------------------------------------------------------------------------ links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = Path(os.path.normpath(page.parent / path)) if path else page
        assert file.exists() and file.is_relative_to(ROOT), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"
