"""Pre-trained weights, fetched and checked like data: a folder that a model is made from.

MiniLM is the encoder of six BERT layers that stands in for DistilBERT (Wang et al., "MiniLM: deep
self-attention distillation", 2020, trained on for sentences by the sentence-transformers project).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eris.data.cache import Location, check_files, listed, sha256_of

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


def load_minilm(path: Location = None, *, cache: Location = None) -> Weights:
    """The folder of an encoder: the user's own ``path``, else MiniLM from the cache, checked.

    Hand its ``folder`` to :func:`eris.models.text.text_classifier` and to ``tokenise``.
    """
    if path is None:
        return cached_weights("minilm", FILES, cache)
    return own_weights("minilm", Path(path), ("config.json", MODEL), "a Hugging Face model folder")


def cached_weights(name: str, files: Sequence[str], cache: Location) -> Weights:
    """Weights from the cache, checked."""
    cached = listed(name, files, cache=cache)
    return Weights(name, cached.source, cached.folder)


def own_weights(name: str, folder: Path, files: Sequence[str], expected: str) -> Weights:
    """Weights in the user's own folder, in which ``files`` must be."""
    check_files(name, folder, files, expected)
    source = f"folder {folder} ({MODEL} sha256 {sha256_of(folder / MODEL)})"
    return Weights(folder.name, source, folder)
