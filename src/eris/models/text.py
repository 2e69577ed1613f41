"""A text classifier on a pre-trained encoder from a local Hugging Face folder.

The papers train DistilBERT on IMDB; any encoder that transformers knows as a sequence classifier
does, such as MiniLM's 22.7 million parameters (``eris data fetch minilm``). A trainer hands a
model one tensor, so token ids and attention mask travel together as integers (N, 2, length).
Weights come from safetensors files only, nothing is looked up on the network, no code of a folder
runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.models.pretrained import pretrained, silent, the_library
from eris.models.seeding import check_classes, seeded_generator

FETCH = "`eris data fetch minilm` brings one"


class TextClassifier(nn.Module):
    """A sequence classifier of transformers whose input is one tensor and whose output logits."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (N, classes) of tokens (N, 2, length): the ids, and 1 where there is a token."""
        if tokens.dim() != 3 or tokens.shape[1] != 2 or tokens.is_floating_point():
            found = f"{tokens.dtype} {tuple(tokens.shape)}"
            raise InvalidSetting("tokens", found, "integers (N, 2, length)")
        # What is added to the attention, in full: of a plain mask transformers asks whether it is
        # all ones, and a branch on data is what `vmap` cannot take (gradients of single samples).
        hidden = (1 - tokens[:, 1].float()) * torch.finfo(torch.float32).min
        output = self.classifier(
            input_ids=tokens[:, 0], attention_mask=hidden[:, None, None, :], return_dict=True
        )
        logits: Tensor = output.logits
        return logits


def text_classifier(
    seed: int, path: str | os.PathLike[str] | None = None, classes: int = 2
) -> TextClassifier:
    """The encoder in the folder ``path`` with a classifier on top that depends on ``seed`` alone.

    What the folder has no weights for, the classifier, is drawn from the stream (``seed``,
    "classifier-head"): weights normal with the configuration's ``initializer_range``, biases zero.
    A folder that has a trained classifier keeps it. The process-wide random state is put back.
    """
    check_classes(classes)
    seeded_generator(seed)  # refuses a bad seed before anything is loaded
    folder = _folder(path)
    # The classifier is meant to be missing, and drawn here.
    model, missing = pretrained("AutoModelForSequenceClassification", folder, num_labels=classes)
    _check_encoder(model, missing, folder)
    _draw_head(model, sorted(missing), seed)
    return TextClassifier(model)


def tokenise(
    path: str | os.PathLike[str] | None, texts: Sequence[str], length: int = 256
) -> Tensor:
    """Texts as int32 (N, 2, length) by the tokenizer in ``path``, cut and padded to ``length``."""
    folder = _folder(path)
    longest = int(_config(folder).get("max_position_embeddings", length))
    if not 3 <= length <= longest:
        expected = f"3 (a token and the two around the text) to {longest}, the encoder's positions"
        raise InvalidSetting("length", length, expected)
    transformers = the_library()
    with silent(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    encoded = tokenizer(
        list(texts),
        padding="max_length",
        truncation=True,
        max_length=length,
        return_attention_mask=True,
        return_tensors="np",
    )
    pair = np.stack([encoded["input_ids"], encoded["attention_mask"]], axis=1)
    return torch.from_numpy(pair.astype(np.int32))


def _check_encoder(model: nn.Module, missing: set[str], folder: Path) -> None:
    """Only the top may be missing: a random encoder would train, and nobody would notice."""
    inside = f"{model.base_model_prefix}."
    lost = sorted(key for key in missing if key.startswith(inside) and ".pooler." not in key)
    if lost:
        found = f"{len(lost)} of its weights, {lost[0]} first, are missing"
        raise InvalidSetting("path", str(folder), f"all weights of the encoder; {found}")


def _draw_head(model: nn.Module, names: Sequence[str], seed: int) -> None:
    parameters = dict(model.named_parameters())
    deviation = float(getattr(model.config, "initializer_range", 0.02))
    with torch.no_grad():
        for number, name in enumerate(names):
            target = parameters[name]
            if target.dim() < 2:
                target.zero_()
                continue
            drawn = Stream(seed, "classifier-head", shard=number).normal(0, target.numel())
            scaled = (deviation * drawn).astype(np.float32).reshape(target.shape)
            target.copy_(torch.from_numpy(scaled))


def _folder(path: str | os.PathLike[str] | None) -> Path:
    if path is None:
        raise InvalidSetting("path", None, f"a Hugging Face model folder; {FETCH}")
    folder = Path(path)
    if not (folder / "config.json").is_file():
        expected = f"a Hugging Face model folder, with a config.json; {FETCH}"
        raise InvalidSetting("path", str(folder), expected)
    return folder


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as broken:
        expected = f"a folder whose config.json is JSON ({broken})"
        raise InvalidSetting("path", str(folder), expected) from broken
    return config if isinstance(config, Mapping) else {}
