"""``model.config``: the hyperparameters as the reference's config object has them."""

from __future__ import annotations

from typing import Any

import torch

from .errors import UnknownName


class Config:
    """The checkpoint's config with the reference's class defaults filled in, normalised as the reference normalises it.

    Attributes are those of transformers' config class: ``config.num_hidden_layers``, ``config.layer_types``, …
    """

    def __init__(self, attributes: dict[str, Any]) -> None:
        attributes = dict(attributes)
        if isinstance(attributes.get("dtype"), str):
            attributes["dtype"] = getattr(torch, attributes["dtype"].removeprefix("torch."))
        if isinstance(attributes.get("id2label"), dict):
            attributes["id2label"] = {int(key): value for key, value in attributes["id2label"].items()}
        if isinstance(attributes.get("per_layer_config"), dict):
            attributes["per_layer_config"] = {int(key): value for key, value in attributes["per_layer_config"].items()}
        for key in ("text_config", "vision_config", "audio_config"):
            if isinstance(attributes.get(key), dict):
                attributes[key] = Config(attributes[key])
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if (index := name.removesuffix("_id") + "_index") in self.__dict__:  # image_token_id is image_token_index
            return self.__dict__[index]
        raise UnknownName(f"the config has no '{name}'; it has {', '.join(self.__dict__)}")

    @property
    def num_labels(self) -> int:
        return len(self.id2label)

    @property
    def rope_scaling(self) -> Any:
        """The reference's older name of ``rope_parameters``."""
        return self.__dict__.get("rope_parameters")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The reference's older name of ``dtype``."""
        return self.dtype

    def to_dict(self) -> dict[str, Any]:
        return {key: value.to_dict() if isinstance(value, Config) else value for key, value in self.__dict__.items()}

    def get(self, name: str, default: Any = None) -> Any:
        return self.__dict__.get(name, default)

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        return "Config({\n" + "".join(f"  {key!r}: {value!r},\n" for key, value in self.__dict__.items()) + "})"
