"""Multimodal checkpoints with a text prompt: every text value against the reference's multimodal class, and every spelling."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import gemloupe
from conftest import token_ids
from gemloupe import StandardizedTransformer
from helpers import assert_all_equal, assert_padded_batch_equal, assert_walk_equal, logits_of, read_all
from reference import wrappers
from reference.capture import Reference
from reference.greedy import greedy
from test_config import plain

EACH = [(name, dtype) for name in wrappers.RECIPES for dtype in ("float32", "bfloat16")]


@dataclass(frozen=True)
class Wrapper:
    folder: Path
    name: str

    @functools.cache  # noqa: B019
    def reference(self) -> Reference:
        return Reference(self.folder)

    @functools.cache  # noqa: B019
    def model(self) -> StandardizedTransformer:
        # PaliGemma 2's logits are capped in the reference, and not by default here.
        return StandardizedTransformer(self.folder, attn_implementation="eager", final_logit_softcapping="config")

    def ids(self, length: int, seed: int = 1) -> torch.Tensor:
        return token_ids(length, 396, seed)

    def padded(self, lengths=(17, 9, 1)) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = (torch.zeros(len(lengths), max(lengths), dtype=torch.long) for _ in range(2))
        for row, length in enumerate(lengths):
            ids[row, -length:] = self.ids(length, seed=row + 10)
            mask[row, -length:] = 1
        return ids, mask


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("wrappers")
    return functools.cache(lambda name, dtype: Wrapper(wrappers.build(root, name, dtype), name))


@pytest.fixture(params=EACH, ids="-".join)
def wrapper(request, built) -> Wrapper:
    return built(*request.param)


@pytest.fixture(params=wrappers.RECIPES)
def wrapper32(request, built) -> Wrapper:
    return built(request.param, "float32")


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("length", [1, 9, 33])
def test_every_value_and_port(wrapper, length):
    assert_walk_equal(wrapper, wrapper.ids(length, seed=length))


def test_ids_of_images_and_sounds_in_a_text_prompt(wrapper):
    """Gemma 4 looks them up as padding, in both tables; the others look up the image's own row."""
    ids = wrapper.ids(12)
    ids[0, 3:9] = torch.tensor([392, 392, 393, 394, 392, 0])
    expected = wrapper.reference().capture(ids)
    assert expected["vision.image_token_mask"].sum() == 3
    assert_all_equal(read_all(wrapper.model(), expected, ids), expected)


def test_a_padded_batch(wrapper):
    assert_padded_batch_equal(wrapper)


def test_the_default_load_is_the_same_model(wrapper32):
    ids = wrapper32.ids(20)
    model = StandardizedTransformer(wrapper32.folder, final_logit_softcapping="config")
    assert (model(ids) - wrapper32.reference().logits(ids)).abs().max() <= 1e-4


def test_greedy_tokens(wrapper):
    ids = wrapper.ids(14)
    expected = greedy(wrapper.reference(), ids)
    assert wrapper.model().generate(ids, max_new_tokens=32)[0, 14:].tolist() == expected


def test_the_ports_of_the_inner_model(wrapper32):
    ids, calls = wrapper32.ids(9), {}
    reference = wrapper32.reference().model
    inner = reference.model.language_model
    hooks = [
        inner.register_forward_pre_hook(lambda _, args, kwargs: calls.update(kwargs=(args, kwargs)), with_kwargs=True),
        inner.register_forward_hook(lambda _, args, output: calls.update(output=output)),
    ]
    with torch.no_grad():
        reference(input_ids=ids, attention_mask=torch.ones_like(ids))
    for hook in hooks:
        hook.remove()
    model = wrapper32.model()
    with model.trace(ids):
        args, kwargs = model.model.language_model.inputs.save()
        output = model.model.language_model.output.save()
    assert not args and not calls["kwargs"][0]
    seen = calls["kwargs"][1]
    assert list(kwargs) == [name for name in seen if name in kwargs]
    for name, value in kwargs.items():
        if seen[name] is not None:  # positions that the reference makes inside
            assert torch.equal(value, seen[name]), name
    assert torch.equal(output[0], calls["output"].last_hidden_state)


def test_paligemma_is_uncapped_unless_asked(built):
    paligemma = built("paligemma2", "float32")
    model, ids = StandardizedTransformer(paligemma.folder, attn_implementation="eager"), paligemma.ids(9)
    with model.trace(ids):
        head, logits = model.lm_head_output.save(), model.logits.save()
    assert torch.equal(head, logits)
    assert not torch.equal(logits, paligemma.model()(ids))
    assert model.project_on_vocab(torch.zeros(48)).shape == (399,)


# ------------------------------------------------------------------------------------------------ towers


def test_names_shapes_and_buffers_are_the_references(wrapper32):
    reference = wrapper32.reference().model
    expected = {name: list(tensor.shape) for name, tensor in reference.state_dict().items()}
    weights = wrapper32.model()._core.plan.weights
    assert {name: shape for name, shape, _, _ in weights} == expected
    assert {name for name, _, is_buffer, _ in weights if not is_buffer} == expected.keys() - dict(
        reference.named_buffers()
    ).keys()
    assert [path for path, _ in reference.named_modules() if path] == sorted(
        wrapper32.model().module_paths(), key=[path for path, _ in reference.named_modules()].index
    )


def test_classes_and_summaries_are_the_references(wrapper32):
    found = {info["path"]: info["class_name"] for info in wrapper32.model()._infos}
    reference = {path: type(module).__name__ for path, module in wrapper32.reference().model.named_modules()}
    assert found == reference


def test_tower_weights_are_mapped(wrapper32):
    for name, tensor in wrapper32.reference().model.state_dict().items():
        path, _, weight = name.rpartition(".")
        module = wrapper32.model()
        for part in path.split("."):
            module = module[int(part)] if part.isdigit() else getattr(module, part)
        assert torch.equal(getattr(module, weight), tensor), name


def test_what_needs_an_image_says_so(wrapper32):
    model = wrapper32.model()
    with model.trace(wrapper32.ids(3)):
        for name in ("image_features", "patch_embeddings"):
            with pytest.raises(gemloupe.NotInThisRun, match=f"vision.{name}.*image"):
                getattr(model.vision, name)
        with pytest.raises(gemloupe.NotInThisRun, match="image"):
            model.projector.output  # noqa: B018
        assert not model.vision.image_token_mask.any()
        if wrapper32.name == "gemma4_unified":
            with pytest.raises(gemloupe.Absent, match="without a tower"):
                model.vision.tower_output  # noqa: B018
        else:
            with pytest.raises(gemloupe.NotInThisRun, match=r"vision.layers.1.self_attn.attention_keys.*image"):
                model.vision.layers[1].self_attn.attention_keys  # noqa: B018
            with pytest.raises(gemloupe.UnknownName, match=r"vision tower has 2 blocks, 0 to 1"):
                model._row("vision.layers.7.layer_output")
        if wrapper32.name == "gemma4_e2b":
            with pytest.raises(gemloupe.NotInThisRun, match="sound"):
                model.model.audio_tower.layers[0].output  # noqa: B018


def test_sizes(built):
    vision = built("gemma4_e2b", "float32").model().vision
    assert (vision.num_layers, vision.vision_hidden_size, vision.num_heads, vision.head_dim) == (2, 24, 3, 8)
    assert (vision.intermediate_size, vision.patch_size, vision.image_size) == (36, 4, "varies")
    assert built("paligemma1", "float32").model().vision.image_size == 28
    assert built("gemma3", "float32").model().head_dim == 16


# ------------------------------------------------------------------------------------------------ config, weights


def test_config_is_the_references(wrapper32):
    model, reference = wrapper32.model(), wrapper32.reference()
    parts = [key for key in ("text_config", "vision_config", "audio_config") if getattr(reference.config, key, None)]
    for key in parts:
        expected = vars(getattr(reference.config, key))
        found = getattr(model.config, key)
        wrong = {
            name: (found.get(name, "no such attribute"), value)
            for name, value in expected.items()
            if not name.startswith("_") and plain(found.get(name, "no such attribute")) != plain(value)
        }
        assert not wrong, f"{key} (found, expected): {wrong}"
    expected = {
        name: value for name, value in vars(reference.config).items() if not name.startswith("_") and name not in parts
    }
    assert {name: plain(model.config.get(name, "no such attribute")) for name in expected} == plain(expected)
    assert model.config.image_token_id == reference.config.image_token_id == 392
    assert model.config.to_dict()["text_config"]["hidden_size"] == model.hidden_size


@pytest.mark.parametrize("spelling", wrappers.SPELLINGS)
@pytest.mark.parametrize("with_head", [False, True], ids=["tied", "head"])
def test_every_spelling_is_the_same_model(built, tmp_path, spelling, with_head):
    for name in wrappers.RECIPES:
        if name.startswith("gemma4") and spelling in "AB":
            continue
        wrapper = built(name, "float32")
        folder = wrappers.respell(wrapper.folder, tmp_path / name, wrappers.SPELLINGS[spelling], with_head)
        model = StandardizedTransformer(folder, attn_implementation="eager", final_logit_softcapping="config")
        differ = (logits_of(model, wrapper.ids(9)) - logits_of(wrapper.model(), wrapper.ids(9))).abs().max()
        assert differ <= 1e-5, name  # not always equal: where a file's tensors begin decides which kernel reads them


def test_the_hubs_spelling_of_12b(built, tmp_path):
    wrapper = built("gemma4_unified", "float32")
    model = StandardizedTransformer(
        wrappers.respell(wrapper.folder, tmp_path / "hub", wrappers.UNIFIED_HUB), attn_implementation="eager"
    )
    assert torch.equal(model(wrapper.ids(9)), wrapper.model()(wrapper.ids(9)))
    assert torch.equal(
        model.projector.embedding_projection.weight, wrapper.model().projector.embedding_projection.weight
    )


def test_weights_of_blocks_that_borrow_are_ignored_by_name(built, tmp_path):
    wrapper = built("gemma4_e2b", "float32")
    extra = {
        f"model.language_model.layers.{layer}.self_attn.{part}.weight": torch.zeros(16, 48)
        for layer in range(4, 8)
        for part in ("k_proj", "v_proj", "k_norm")
    }
    folder = wrappers.respell(wrapper.folder, tmp_path / "extra", {}, **extra)
    model = StandardizedTransformer(folder, attn_implementation="eager")
    assert torch.equal(model(wrapper.ids(9)), wrapper.model()(wrapper.ids(9)))
    extra["model.language_model.layers.3.self_attn.k_bias.weight"] = torch.zeros(2)
    with pytest.raises(gemloupe.BadCheckpoint, match=r"layers\.3\.self_attn\.k_bias"):
        StandardizedTransformer(wrappers.respell(wrapper.folder, tmp_path / "wrong", {}, **extra))


# ------------------------------------------------------------------------------------------------ bad input


def changed(wrapper: Wrapper, target: Path, change) -> Path:
    shutil.copytree(wrapper.folder, target)
    config = json.loads((target / "config.json").read_text())
    change(config)
    (target / "config.json").write_text(json.dumps(config))
    return target


BAD = {
    "no text_config": ("gemma3", lambda c: c.pop("text_config"), "text_config is missing"),
    "null vision_config": ("paligemma1", lambda c: c.update(vision_config=None), "vision_config is missing"),
    "text_config is a list": ("gemma3", lambda c: c.update(text_config=[]), "text_config must be an object"),
    "another text family": (
        "gemma4_e2b",
        lambda c: c["text_config"].update(model_type="gemma3_text"),
        "mixes families",
    ),
    "a text family that paligemma lacks": (
        "paligemma2",
        lambda c: c["text_config"].update(model_type="gemma3_text"),
        "'gemma' or 'gemma2'.*mixes families",
    ),
    "another tower": (
        "gemma3",
        lambda c: c["vision_config"].update(model_type="clip_vision_model"),
        "siglip_vision_model",
    ),
    "a tower of Gemma 4": (
        "paligemma1",
        lambda c: c["vision_config"].update(model_type="gemma4_vision"),
        "mixes families",
    ),
    "an unknown key": ("gemma3", lambda c: c["text_config"].update(sparkle=1), r"'text_config\.sparkle'"),
    "an unknown key of the tower": (
        "gemma4_e2b",
        lambda c: c["vision_config"].update(sparkle=1),
        r"'vision_config\.sparkle'",
    ),
    "an unknown key at the root": ("gemma4_26b", lambda c: c.update(sparkle=1), "'sparkle'"),
    "a key of another type": (
        "gemma3",
        lambda c: c["text_config"].update(hidden_size="big"),
        r"'text_config\.hidden_size'",
    ),
    "heads that do not divide": (
        "paligemma1",
        lambda c: c["vision_config"].update(num_attention_heads=7),
        "no multiple",
    ),
    "more tokens than patches": ("gemma3", lambda c: c.update(mm_tokens_per_image=400), "mm_tokens_per_image"),
    "channels of a sound": (
        "gemma4_e2b",
        lambda c: c["audio_config"].update(subsampling_conv_channels=[3]),
        "subsampling_conv_channels",
    ),
    "two sizes of one patch": (
        "gemma4_unified",
        lambda c: c["vision_config"].update(model_patch_size=13),
        "model_patch_size",
    ),
    "a text model alone": (
        "gemma3",
        lambda c: c.update(c.pop("text_config"), model_type="gemma3"),
        "text_config|no meaning",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_config_that_contradicts_itself(built, tmp_path, case):
    name, change, words = BAD[case]
    with pytest.raises(gemloupe.BadConfig, match=words) as error:
        StandardizedTransformer(changed(built(name, "float32"), tmp_path / "bad", change))
    assert "config.json" in str(error.value)


@pytest.mark.parametrize("place", ["text_config", "vision_config"])
@pytest.mark.parametrize("name", ["gemma3", "paligemma2", "gemma4_e2b"])
def test_a_part_may_repeat_keys_that_the_root_does_not_read(built, tmp_path, name, place):
    folder = changed(
        built(name, "float32"), tmp_path / "ids", lambda c: c[place].update(bos_token_id=2, eos_token_id=1)
    )
    assert getattr(StandardizedTransformer(folder).config, place).eos_token_id == 1


def test_an_unknown_key_can_be_ignored(built, tmp_path):
    folder = changed(built("gemma3", "float32"), tmp_path / "more", lambda c: c["text_config"].update(sparkle=1))
    model = StandardizedTransformer(folder, ignore_config_keys=["text_config.sparkle"])
    assert model.config.text_config.sparkle == 1
    StandardizedTransformer(folder, ignore_config_keys=["sparkle"])


def test_a_missing_shard_of_the_tower(built, tmp_path):
    wrapper = built("gemma3", "float32")
    spelling = {"model.vision_tower.post_layernorm.": "model.vision_tower.norm."}
    with pytest.raises(gemloupe.BadCheckpoint, match="post_layernorm"):
        StandardizedTransformer(wrappers.respell(wrapper.folder, tmp_path / "missing", spelling))
