"""A tokenizer of a few hundred tokens with the layout of Gemma's: specials, runs, bytes, pieces by rank, characters."""

import json
from pathlib import Path

SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"]
RUNS = ["\n\n", "\n\n\n", "▁▁", "▁▁▁"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = "▁t he in er on re ▁a ▁the at ▁o is ▁c ing ▁of ▁s it ▁in an ▁is ▁to ▁and ity ▁ci ▁city".split()
CHARACTERS = ["▁", "\n"] + [chr(code) for code in range(33, 127)] + list("éüßñ中文")
TOKENS = SPECIALS + RUNS + BYTES + PIECES + CHARACTERS

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n'"
    " + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def merges():
    """Every split of a piece into two tokens, best piece first, as Gemma's own file lists them (the runs too)."""
    ids = {token: index for index, token in enumerate(TOKENS)}
    for piece in RUNS + PIECES:
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [split for split in splits if split[0] in ids and split[1] in ids]
        yield from sorted(known, key=lambda split: (ids[split[0]], ids[split[1]]))


def write(folder: Path):
    """tokenizer.json and tokenizer_config.json."""
    added = [
        dict(id=index, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=special)
        for index, (token, special) in enumerate([(t, True) for t in SPECIALS] + [(t, False) for t in RUNS])
    ]
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    sequence = [{"Sequence": {"id": name, "type_id": type_id}} for name, type_id in (("A", 0), ("B", 1))]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": split,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, sequence[0]],
            "pair": [bos, sequence[0], {"SpecialToken": {"id": "<bos>", "type_id": 1}}, sequence[1]],
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
            "vocab": {token: index for index, token in enumerate(TOKENS)},
            "merges": [list(pair) for pair in merges()],
        },
    }
    config = {
        "tokenizer_class": "GemmaTokenizer",
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 10**30,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")


def write_gguf(writer):
    """The same vocabulary as GGUF metadata: scores stand for ranks, types say what a token is."""
    kinds = [3] * len(SPECIALS) + [4] * len(RUNS) + [6] * len(BYTES) + [1] * (len(PIECES) + len(CHARACTERS))
    kinds[SPECIALS.index("<unk>")] = 2
    ranked = {piece: -float(rank) for rank, piece in enumerate(PIECES)}
    last = -float(len(PIECES))
    plain = {token: last - offset for offset, token in enumerate(CHARACTERS)}
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([ranked.get(token, plain.get(token, -1000.0)) for token in TOKENS])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)
