"""model.tokenizer against the PyPI packages: ids, offsets and text of `tokenizers`, tensors, padding and chats of transformers.

GEMLOUPE_REAL_TOKENIZER names a folder with a real tokenizer.json, which is then compared as well.
"""

import os
import random
import shutil
import string
from dataclasses import dataclass
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers

from gemloupe import StandardizedTransformer, errors
from reference import checkpoints
from reference.tokenizer import CHAT_TEMPLATE, SPECIALS

TEMPLATES = Path(__file__).parents[2] / "tests/data/text/templates"


@dataclass(frozen=True)
class Tokenizers:
    """The same files as three libraries read them."""

    ours: object
    plain: tokenizers.Tokenizer
    transformers: transformers.PreTrainedTokenizerBase

    def encode(self, text: str, add_special_tokens: bool = True) -> tokenizers.Encoding:
        """The reference's encoding, but for the one thing that we do otherwise: no second <bos>."""
        return self.plain.encode(text, add_special_tokens=add_special_tokens and not text.startswith("<bos>"))


def beside_weights(tokenizer: Path, checkpoint: Path, where: Path) -> Path:
    """A folder with the weights of a tiny checkpoint and another's tokenizer: a model is what loads one."""
    shutil.copytree(checkpoint, where)
    for file in tokenizer.glob("tokenizer*"):
        shutil.copy(file, where)
    return where


REAL = os.environ.get("GEMLOUPE_REAL_TOKENIZER")


@pytest.fixture(scope="module", params=["tiny", "gguf", *(["real"] if REAL else [])])
def each(request, zoo, tmp_path_factory) -> Tokenizers:
    folder = zoo.folder("mqa")
    file = checkpoints.gguf_file(zoo.root) if request.param == "gguf" else None  # the same vocabulary
    if request.param == "real":
        folder = beside_weights(Path(REAL), folder, tmp_path_factory.mktemp("real") / "checkpoint")
    return Tokenizers(
        StandardizedTransformer(file or folder).tokenizer,
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")),
        transformers.AutoTokenizer.from_pretrained(folder),
    )


# ------------------------------------------------------------------------------------------------ random texts

ALPHABETS = [
    "the city of is in and to ",
    string.printable,
    "  \n",
    "0123456789 .,",
    "éüßñ中文 Привет हिन्दी 한국어 日本語 العربية עברית",
    "🙂👩‍👩‍👧🇩🇪e\u0301\u00a0\u2028\ufeff▁\0",
]
TOKENS = [*SPECIALS, "<unused0>", "<0x41>", "<0xC3><0xA9>", "<bos", "[multimodal]"]


def any_character(rng: random.Random) -> str:
    code = rng.randrange(0x110000 - 0x800)
    return chr(code if code < 0xD800 else code + 0x800)  # not the surrogates, which are no characters


def fragment(rng: random.Random) -> str:
    length = int(rng.expovariate(0.1))
    match rng.randrange(4):
        case 0:
            return rng.choice(TOKENS)
        case 1:
            return rng.choice(" \n\t") * rng.randrange(1, 40)
        case 2:
            return "".join(any_character(rng) for _ in range(length))
    return "".join(rng.choices(rng.choice(ALPHABETS), k=length))


def random_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(fragment(rng) for _ in range(rng.randrange(1, 8))) for _ in range(count)]


TEXTS = ["", " ", "\n", "<bos>", "the city of", *random_texts(400, seed=1)]


# ------------------------------------------------------------------------------------------------ text to ids


def test_ids_and_offsets(each):
    for text in TEXTS:
        for special in (True, False):
            found = each.ours(text, add_special_tokens=special, return_offsets_mapping=True)
            expected = each.encode(text, special)
            assert found["input_ids"] == expected.ids, repr(text)
            assert found["offset_mapping"] == expected.offsets, repr(text)
            assert found["attention_mask"] == expected.attention_mask
            assert each.ours.encode(text, add_special_tokens=special) == expected.ids


def test_tokens(each):
    for text in TEXTS:
        assert each.ours.tokenize(text) == each.encode(text, False).tokens, repr(text)


def test_bos_comes_once(each):
    for text in TEXTS:
        ids = each.ours.encode(text)
        assert ids == each.ours.encode("<bos>" + text.removeprefix("<bos>")), repr(text)
        assert ids[0] == each.ours.bos_token_id
        assert ids[1:] == each.encode(text.removeprefix("<bos>"), False).ids


@pytest.mark.parametrize("alphabet", ["a", "the", string.ascii_letters, "é中🙂"])
def test_a_megabyte_of_one_word(each, alphabet):
    word = "".join(random.Random(3).choices(alphabet, k=2**20))
    found = each.ours(word, return_offsets_mapping=True)
    expected = each.plain.encode(word)
    assert found["input_ids"] == expected.ids
    assert found["offset_mapping"] == expected.offsets
    assert each.ours.decode(found["input_ids"], skip_special_tokens=True) == word


def test_lone_surrogates_read_as_replacement_characters(each):
    """Python strings can hold them, UTF-8 cannot; `tokenizers` takes no such text."""
    for text in ("\ud800", "a\udfff b\ud83d\n"):
        replaced_text = text.translate(dict.fromkeys(range(0xD800, 0xE000), 0xFFFD))
        replaced = each.encode(replaced_text)
        found = each.ours(text, return_offsets_mapping=True)
        assert (found["input_ids"], found["offset_mapping"]) == (replaced.ids, replaced.offsets)
        text, expected = (
            each.ours.apply_chat_template([dict(role="user", content=t)], chat_template=CHAT_TEMPLATE, tokenize=False)
            for t in (text, replaced_text)
        )
        assert text == expected


def test_a_prompt_is_encoded_as_the_tokenizer_does(zoo):
    model = zoo.model("mqa")
    for text in ("a\udfff b", "<bos>it is", ""):
        with model.trace(text):
            ids = model.input_ids.save()
        assert ids.tolist() == [model.tokenizer.encode(text)]


# ------------------------------------------------------------------------------------------------ ids to text


def test_decode(each):
    rng = random.Random(2)
    size = each.plain.get_vocab_size()
    rows = [each.encode(text).ids for text in TEXTS]
    rows += [rng.choices(range(size), k=rng.randrange(30)) for _ in range(200)]
    rows += [
        rng.choices(each.ours.convert_tokens_to_ids([f"<0x{b:02X}>" for b in range(256)]), k=9) for _ in range(200)
    ]
    for skip in (True, False):
        expected = [each.plain.decode(ids, skip_special_tokens=skip) for ids in rows]
        assert each.ours.batch_decode(rows, skip_special_tokens=skip) == expected
        assert [each.ours.decode(torch.tensor(ids, dtype=torch.long), skip) for ids in rows] == expected
    assert each.ours.decode(rows[-1][0]) == each.plain.decode(rows[-1][:1])


def test_the_vocabulary(each):
    vocabulary = each.plain.get_vocab(with_added_tokens=True)
    ours = each.ours
    assert ours.get_vocab() == vocabulary
    assert len(ours) == ours.vocab_size == len(vocabulary)
    assert ours.get_added_vocab() == each.transformers.get_added_vocab()
    tokens = list(vocabulary)
    assert ours.convert_tokens_to_ids(tokens) == list(vocabulary.values())
    assert ours.convert_ids_to_tokens(torch.tensor(list(vocabulary.values()))) == tokens
    assert ours.convert_tokens_to_ids("no such token") == each.transformers.convert_tokens_to_ids("no such token")
    assert ours.convert_tokens_to_ids([tokens[7]]) == [ours.convert_tokens_to_ids(tokens[7])]
    with pytest.raises(errors.UnknownName, match=f"{max(vocabulary.values())}"):
        ours.convert_ids_to_tokens(max(vocabulary.values()) + 1)
    for name in ("bos", "eos", "pad", "unk"):
        assert getattr(ours, f"{name}_token") == getattr(each.transformers, f"{name}_token")
        assert getattr(ours, f"{name}_token_id") == getattr(each.transformers, f"{name}_token_id")
    flagged = {i for i, token in each.plain.get_added_tokens_decoder().items() if token.special}
    assert set(ours.all_special_ids) == flagged


def test_tokens_to_text(each):
    for text in TEXTS[:100]:
        tokens = each.encode(text, False).tokens
        assert each.ours.convert_tokens_to_string(tokens) == each.transformers.convert_tokens_to_string(tokens)


# ------------------------------------------------------------------------------------------------ tensors, padding

BATCH = ["it is the city", "of", "in 中 and\n\n\nto 12"]


def assert_same(found, expected):
    """Lists or tensors by the same keys, in any order."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[key], value), key
            assert found[key].dtype == value.dtype
        else:
            assert found[key] == value, key


@pytest.mark.parametrize("tensors", [None, "pt"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "options", [{"padding": True}, {"padding": "max_length", "max_length": 40}], ids=["longest", "40"]
)
def test_padding(each, tensors, side, options):
    options = {**options, "padding_side": side, "return_tensors": tensors}
    assert_same(each.ours(BATCH, **options), each.transformers(BATCH, **options))
    assert_same(each.ours(BATCH[:1], **options), each.transformers(BATCH[:1], **options))


def test_the_padding_side_is_a_decoders(each):
    assert each.ours.padding_side == "left"
    ids = each.ours(BATCH, return_tensors="pt")
    assert_same(ids, each.transformers(BATCH, return_tensors="pt", padding=True, padding_side="left"))
    with pytest.raises(errors.BadOption, match="'left' and 'right'"):
        each.ours(BATCH, padding=True, padding_side="middle")


def test_one_text_as_a_tensor(each):
    assert_same(each.ours(BATCH[0], return_tensors="pt"), each.transformers(BATCH[0], return_tensors="pt"))
    assert torch.equal(
        each.ours.encode(BATCH[0], return_tensors="pt"), each.ours(BATCH[0], return_tensors="pt").input_ids
    )
    with pytest.raises(errors.BadOption, match="'np'"):
        each.ours(BATCH[0], return_tensors="np")


def test_truncation(each):
    options = dict(truncation=True, max_length=3, return_offsets_mapping=True)
    assert_same(each.ours(BATCH, **options), each.transformers(BATCH, **options))


# ------------------------------------------------------------------------------------------------ chats

CHATS = [
    [dict(role="user", content="  it is\n\n\nthe city ")],
    [dict(role="user", content="of é"), dict(role="assistant", content="中 <eos>"), dict(role="user", content="12 🙂")],
]
CHAT_TEMPLATES = [CHAT_TEMPLATE, *((TEMPLATES / f"{name}.jinja").read_text() for name in ("gemma2", "gemma3"))]


@pytest.mark.parametrize("template", CHAT_TEMPLATES, ids=["tiny", "gemma2", "gemma3"])
@pytest.mark.parametrize("chat", CHATS, ids=["one", "three"])
def test_chats(each, template, chat):
    for prompted in (False, True):
        options = dict(chat_template=template, add_generation_prompt=prompted)

        def both(**more):
            return [t.apply_chat_template(chat, **options, **more) for t in (each.ours, each.transformers)]  # noqa: B023

        text, expected = both(tokenize=False)
        assert text == expected
        assert_same(*both(return_dict=True))
        assert_same(*both(return_dict=True, return_tensors="pt"))
        ids, expected = both(return_dict=False)
        assert ids == expected
        assert ids.count(each.ours.bos_token_id) == 1


def test_a_chat_in_the_checkpoints_own_template(each):
    if each.transformers.chat_template is None:
        with pytest.raises(errors.BadTokenizer, match="no chat template"):
            each.ours.apply_chat_template(CHATS[0])
    else:
        assert each.ours.chat_template == each.transformers.chat_template
        expected = each.transformers.apply_chat_template(CHATS[0], return_dict=False)
        assert each.ours.apply_chat_template(CHATS[0]) == expected
