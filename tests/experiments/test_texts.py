"""A run on texts, by a tiny encoder with random weights saved as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from eris.core.errors import DataUnavailable
from eris.experiments.runs import runner
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.progress import Progress
from eris.experiments.runs.recipe import Recipe

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a"]


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(tmp_path / "encoder")  # type: ignore[no-untyped-call]
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    BertTokenizer(vocab=vocabulary).save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_reviews_are_classified_and_the_encoder_is_named(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.jsonl", "test.jsonl"):
        rows = [f'{{"text": "a {"good" if i % 2 else "bad"} film", "label": {i % 2}}}\n'
                for i in range(12)]  # fmt: skip
        (tmp_path / name).write_text("".join(rows))
    values = {
        "name": "reviews",
        "data.name": "imdb",
        "data.path": str(tmp_path),
        "data.clients": 3,
        "data.samples": 4,
        "data.test_samples": 6,
        "training.rounds": 20,
        "training.learning_rate": 0.01,
        "training.optimiser": "adamw",
        "training.epochs": 1,
        "training.batch_size": 2,
        "model.length": 6,
    }
    asked = Recipe().changed({**values, "model.path": str(encoder)})
    run = runner.start(asked, tmp_path / "runs", Progress())
    assert run.rounds()[-1]["metrics"]["accuracy"] == 1.0
    assert run.recipe.model.name == "minilm"
    assert str(encoder) in run.about["model"]["weights"]
    assert run.about["data"]["test samples"] == 6
    assert assemble(run.recipe).samples.inputs.shape == (12, 2, 6)
    # Without an encoder of one's own it is the fetched one, and it says how to fetch it.
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path / "nothing"))
    with pytest.raises(DataUnavailable, match="eris data fetch minilm"):
        runner.start(Recipe().changed(values), tmp_path / "other", Progress())
