"""Writes tests/data/text: a tiny tokenizer with the layout of Gemma's, as tokenizer.json and as tokenizer.model, and what the
PyPI packages `tokenizers`, `sentencepiece` and `jinja2` (as transformers sets it up) make of many texts, ids and chats.

    python tools/make_text_vectors.py          # needs tokenizers, sentencepiece and transformers; the output is committed
"""

import io
import json
import random
from pathlib import Path

import jinja2
import sentencepiece
from tokenizers import Tokenizer
from transformers.utils import chat_template_utils

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "text"

CORPUS = """
The Eiffel Tower is in the city of Paris. A loupe is a small magnifying glass that jewellers and watchmakers use.
In mechanistic interpretability a researcher reads and edits the values inside a forward pass of a language model.
Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Übermut und Ärger.
L'été, les élèves français mangeaient des crêpes à la crème brûlée près de la forêt.
Привет, мир! Это очень маленький текст для обучения. Съешь же ещё этих мягких французских булок.
吾輩は猫である。名前はまだ無い。東京都に住んでいます。日本語のテキスト。 你好，世界。今天天气很好。
안녕하세요 세계 여러분 반갑습니다. नमस्ते दुनिया यह एक परीक्षण है। مرحبا بالعالم هذا اختبار صغير. שלום עולם זה מבחן.
def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)  # 0 1 1 2 3 5 8 13 21 34 55
for (int i = 0; i < 1024; ++i) { total += values[i] * 3.14159; } // <div class="a">text</div>
"""

NEWLINES = ["\n" * n for n in range(1, 9)]
SPACES = ["▁" * n for n in range(2, 13)]
TURNS = ["<start_of_turn>", "<end_of_turn>"]


def train_model() -> bytes:
    lines = [line for line in CORPUS.split("\n") if line] * 4
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=1000, character_coverage=0.985,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
        control_symbols=TURNS, user_defined_symbols=["[multimodal]", *NEWLINES, *SPACES, "<h1>", "</h1>"],
        byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True, hard_vocab_limit=False, minloglevel=2)  # fmt: skip
    return out.getvalue()


def merges_of(vocab: dict[str, int]) -> list[list[str]]:
    """All ways to make a token out of two, in the order of the tokens; of one token the longest left part first."""
    ways = [
        (index, -cut, token[:cut], token[cut:])
        for token, index in vocab.items()
        for cut in range(1, len(token))
        if token[:cut] in vocab and token[cut:] in vocab
    ]
    return [[left, right] for _, _, left, right in sorted(ways)]


def added(vocab: dict[str, int], content: str, special: bool, **flags) -> dict:
    off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": vocab[content], "content": content, **off, **flags, "special": special}


def tokenizer_json(model: bytes) -> dict:
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *TURNS]
    plain = ["[multimodal]", *NEWLINES, "<h1>", "</h1>"]
    tokens = [added(vocab, t, True) for t in special] + [added(vocab, t, False) for t in plain]
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(tokens, key=lambda t: t["id"]),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, bos, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges_of(vocab),
        },
    }


def variants(base: dict) -> dict[str, dict]:
    """Merge patches (RFC 7386) of the tokenizer, each with something that Gemma's own files may hold or used to hold."""
    vocab, top = base["model"]["vocab"], len(base["model"]["vocab"])
    extra = {"<image_soft_token>": top, "<|tool>": top + 1, "the": vocab.get("the", top + 2), "ag er": top + 3}
    stripping = [
        added(extra, "<image_soft_token>", True, lstrip=True, rstrip=True),
        added(extra, "<|tool>", False, rstrip=True),
        added(extra, "the", False, normalized=True),
        added(extra, "ag er", False, normalized=True, lstrip=True),
    ]
    no_bytes = {f"<0x{byte:02X}>": None for byte in range(256)}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    eos = {"SpecialToken": {"id": "<eos>", "type_id": 0}}
    return {
        "as it is": {},
        "merges as lines": {"model": {"merges": [" ".join(pair) for pair in base["model"]["merges"]]}},
        "added tokens of all kinds": {"added_tokens": base["added_tokens"] + stripping},
        "prepended space": {
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]},
            "pre_tokenizer": None,
            "decoder": {"decoders": [*base["decoder"]["decoders"], strip]},
        },
        "replacements of other lengths": {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [
                    space,
                    *(
                        {"type": "Replace", "pattern": {"String": a}, "content": b}
                        for a, b in (("is", "e"), ("é", "ee"), ("e▁", "▁e▁"), ("th", ""))
                    ),
                ],
            }  # fmt: skip
        },
        "unknown tokens": {"model": {"byte_fallback": False}},
        "unknown tokens, one each": {"model": {"byte_fallback": False, "fuse_unk": False}},
        "no byte tokens": {"model": {"vocab": no_bytes}},
        "whole words first": {"model": {"ignore_merges": True}},
        "an end as well": {
            "post_processor": {
                "single": [*base["post_processor"]["single"], eos],
                "special_tokens": {"<eos>": {"id": "<eos>", "ids": [1], "tokens": ["<eos>"]}},
            }
        },
        "nothing around": {"post_processor": None},
    }


def merge_patch(target, patch):
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def random_character(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return chr(rng.randrange(32, 127))
    if kind < 0.6:
        return chr(rng.randrange(0x800))
    if kind < 0.7:
        return rng.choice("\u200d\u200c\ufe0f\u0301\u20e3\u00ad\ufeff\u2028\0\x7f\x85\r\n\t ▁\u3000")
    if kind < 0.8:
        return chr(rng.randrange(0x10000, 0x110000))
    point = rng.randrange(0x10000 - 0x800)
    return chr(point if point < 0xD800 else point + 0x800)


def texts(rng: random.Random, tokens: list[str]) -> list[str]:
    words = CORPUS.split()
    out = [
        "",
        " ",
        "a",
        "▁",
        "<bos>",
        "<bos>Hello",
        " <bos>Hello",
        "<bos><bos>x",
        "Hello<eos>",
        "<start_of_turn>user\nHi<end_of_turn>\n",
    ]
    out += [
        "<start_of_turn",
        "<<start_of_turn>>",
        "<h1><h1",
        "x<unk>y",
        "a" * 100,
        "👩‍👩‍👧‍👦 🇩🇪 é",
        "line one\r\nline two\tend",
        "\ufffd",
    ]
    out += [c * n for c in " \n" for n in (1, 2, 3, 7, 8, 9, 12, 13, 25, 31, 40, 70)]
    out += ["x" + " " * n + "y" for n in (1, 2, 5, 12, 13, 30)]
    out += [line for line in CORPUS.split("\n") if line]
    out += [
        "the  <|tool>  the <image_soft_token> \u3000x",
        " <image_soft_token><image_soft_token> \n",
        "<|tool>\n\n<|tool>",
        "ag er ag  er",
    ]
    for _ in range(60):
        kind = rng.random()
        if kind < 0.4:
            out.append("".join(random_character(rng) for _ in range(rng.randrange(1, 25))))
        elif kind < 0.7:
            out.append(
                "".join(
                    rng.choice([rng.choice(tokens), rng.choice(words), " ", "\n"]) for _ in range(rng.randrange(1, 10))
                )
            )
        else:
            out.append("".join(rng.choice("aeinrst  ") for _ in range(rng.randrange(1, 50))))
    return out


def id_lists(rng: random.Random, tokenizer: Tokenizer, encoded: list[list[int]]) -> list[list[int]]:
    size = tokenizer.get_vocab_size()
    out = [[], [2], [2, 2, 1]]
    for _ in range(30):
        out.append([rng.randrange(size + 3) for _ in range(rng.randrange(1, 12))])
        raw = "".join(random_character(rng) for _ in range(4)).encode()
        out.append(
            [i for byte in raw if rng.random() < 0.9 and (i := tokenizer.token_to_id(f"<0x{byte:02X}>")) is not None]
        )
        out.append(rng.choice(encoded))
    return out


def tokenizer_vectors(base: dict) -> list[dict]:
    vectors = []
    for name, patch in variants(base).items():
        rng = random.Random(name)
        content = merge_patch(base, patch)
        vocab = content["model"]["vocab"]
        tokenizer = Tokenizer.from_str(json.dumps(content))
        cases = []
        for text in texts(rng, list(vocab)):
            encoding = tokenizer.encode(text)
            cases.append({"text": text, "ids": encoding.ids, "offsets": encoding.offsets})
        decodes = [
            {"ids": ids, "skip": skip, "text": tokenizer.decode(ids, skip_special_tokens=skip)}
            for ids in id_lists(rng, tokenizer, [case["ids"] for case in cases])
            for skip in (False, True)
        ]
        vectors.append(
            {"name": name, "patch": patch, "size": tokenizer.get_vocab_size(), "encodings": cases, "decodings": decodes}
        )
    return vectors


def sentencepiece_vectors(model: bytes) -> list[dict]:
    """Without control tokens in the text, which gemloupe recognises and SentencePiece does not, and without the U+0000 that it
    drops."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    rng = random.Random("sentencepiece")
    control = ["<pad>", "<eos>", "<bos>", "<unk>", *TURNS]
    vocab = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    cases = [t for t in texts(rng, vocab) + texts(rng, vocab) if "\0" not in t and not any(c in t for c in control)]
    return [{"text": text, "ids": pieces.encode(text)} for text in cases]


def rendered(template: str, messages: list | None, variables: dict) -> dict:
    """What transformers makes of a template: its text, or which kind of error."""
    try:
        if messages is not None:
            texts, _ = chat_template_utils.render_jinja_template(
                [chat_template_utils._normalize_chat_messages(messages)], chat_template=template, **variables
            )
            return {"text": texts[0]}
        return {"text": chat_template_utils._compile_jinja_template(template).render(**variables)}
    except jinja2.TemplateError as error:
        return {"error": "refused" if type(error) is jinja2.TemplateError else "broken"}
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, SyntaxError):
        return {"error": "broken"}


def template_vectors() -> dict[str, list]:
    snippets = json.loads((DATA / "snippets.json").read_text(encoding="utf-8"))
    chats = json.loads((DATA / "chats.json").read_text(encoding="utf-8"))
    vectors = [{"template": t, "variables": v, **rendered(t, None, v)} for t, v in snippets]
    chat_vectors = []
    for path in sorted((DATA / "templates").glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for index, chat in enumerate(chats):
            variables = {"bos_token": "<bos>", **{key: value for key, value in chat.items() if key != "messages"}}
            chat_vectors.append(
                {"template": path.name, "chat": index, **rendered(template, chat["messages"], variables)}
            )
    return {"snippets": vectors, "chats": chat_vectors}


def write(name: str, value) -> None:
    (DATA / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    model = train_model()
    (DATA / "tokenizer.model").write_bytes(model)
    base = tokenizer_json(model)
    (DATA / "tokenizer.json").write_text(json.dumps(base, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    write("tokenizer_vectors.json", tokenizer_vectors(base))
    write("sentencepiece_vectors.json", sentencepiece_vectors(model))
    write("template_vectors.json", template_vectors())


if __name__ == "__main__":
    main()
