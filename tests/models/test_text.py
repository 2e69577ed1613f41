"""The text classifier, on a tiny encoder with random weights saved as a Hugging Face folder."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
)
from transformers.utils import logging as hf_logging

from eris.core.errors import InvalidSetting, MissingExtra
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data.sources import fetch
from eris.data.weights import load_minilm
from eris.models import create, entry
from eris.models.text import TextClassifier, text_classifier, tokenise
from eris.training.flat import FlatParameters
from eris.training.gradients import ClientGradients
from eris.training.torch import (
    TorchTrainer,
    evaluate,
    flatten,
    parameter_count,
    single_threaded,
    torch_clients,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a"]
TEXTS = ["a good film", "bad", "a bad bad film", "good good"]
LABELS = torch.tensor([1, 0, 0, 1])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder")
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(path)  # type: ignore[no-untyped-call]
    BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(path)
    return path


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """One to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


class Listener(logging.Handler):
    """Keeps what a library logs."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def still(path: Path) -> TextClassifier:
    """A classifier without dropout."""
    return text_classifier(0, path).eval()


def test_tokens_are_ids_and_mask(folder: Path) -> None:
    tokens = tokenise(folder, TEXTS, length=5)
    assert (tokens.shape, tokens.dtype) == ((4, 2, 5), torch.int32)
    assert tokens[1].tolist() == [[2, 6, 3, 0, 0], [1, 1, 1, 0, 0]]
    assert tokens[2, 0].tolist() == [2, 8, 6, 6, 3]  # cut
    assert tokenise(folder, ["a strange film"], length=5)[0, 0].tolist() == [2, 8, 1, 7, 3]
    for length in (2, 17):
        with pytest.raises(InvalidSetting, match=f"length is {length}; expected 3 .* to 16"):
            tokenise(folder, TEXTS, length=length)


def test_padding_changes_nothing(folder: Path) -> None:
    short, padded = (still(folder)(tokenise(folder, TEXTS[:1], length=n)) for n in (5, 12))
    assert torch.allclose(short, padded, atol=1e-6)


def test_the_logits_are_those_of_transformers(folder: Path) -> None:
    """Called as its own users call it, with a plain mask."""
    model, tokens = still(folder), tokenise(folder, TEXTS, length=7)
    direct = model.classifier(input_ids=tokens[:, 0], attention_mask=tokens[:, 1]).logits
    assert torch.allclose(model(tokens), direct, atol=1e-6)
    unmasked = model.classifier(input_ids=tokens[:, 0]).logits
    assert not torch.allclose(model(tokens), unmasked, atol=1e-3)


def test_the_encoder_is_the_file_and_the_head_is_the_stream(folder: Path) -> None:
    before = torch.random.get_rng_state()
    made = text_classifier(3, folder, classes=3).classifier.state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    stored = load_file(folder / "model.safetensors")
    assert {f"bert.{name}" for name in stored} == set(made) - {
        "classifier.weight",
        "classifier.bias",
    }
    for name, tensor in stored.items():
        assert torch.equal(made[f"bert.{name}"], tensor), name
    # Missing names in order: bias, weight. So the weight is shard 1.
    drawn = 0.3 * Stream(3, "classifier-head", shard=1).normal(0, 24).reshape(3, 8)
    assert np.array_equal(made["classifier.weight"].numpy(), drawn.astype(np.float32))
    assert not made["classifier.bias"].any()


def test_the_seed_decides_the_head(folder: Path) -> None:
    first, again, other = (flatten(text_classifier(s, folder)) for s in (3, 3, 4))
    assert np.array_equal(first, again)
    assert (first != other).sum() == 16  # the head's weights, and nothing else


def test_a_trained_classifier_is_kept(folder: Path, tmp_path: Path) -> None:
    made = text_classifier(7, folder)
    made.classifier.save_pretrained(tmp_path)  # type: ignore[operator]
    assert np.array_equal(flatten(text_classifier(8, tmp_path)), flatten(made))


def test_an_encoder_of_another_kind_does_too(tmp_path: Path) -> None:
    """DistilBERT, the papers' own, has no pooler but one more layer in its head."""
    config = DistilBertConfig(vocab_size=9, dim=8, n_layers=1, n_heads=2, hidden_dim=16)
    with torch.random.fork_rng(devices=[]):
        DistilBertModel(config).save_pretrained(tmp_path)
    first, again, other = (text_classifier(s, tmp_path) for s in (1, 1, 2))
    assert np.array_equal(flatten(first), flatten(again))
    assert (flatten(first) != flatten(other)).sum() == 8 * 8 + 2 * 8
    assert first(torch.ones(4, 2, 5, dtype=torch.int32)).shape == (4, 2)


def test_it_trains_with_adamw(folder: Path) -> None:
    model, tokens = text_classifier(0, folder), tokenise(folder, TEXTS, length=6)
    start = flatten(model)

    def trained_update() -> Vector:
        trainer = TorchTrainer(
            model, tokens, LABELS, learning_rate=5e-3, optimiser="adamw", steps=60, batch_size=2
        )
        return trainer.update(start, 1).vector

    update = trained_update()
    assert update.shape == (parameter_count(model),)
    trained = start - np.float32(5e-3) * update
    before, after = (evaluate(model, x, tokens, LABELS)["loss"] for x in (start, trained))
    assert after < before / 2
    assert np.array_equal(trained_update(), update)  # dropout and all


def test_partitions_deal_it_out(folder: Path) -> None:
    model, tokens = text_classifier(0, folder), tokenise(folder, TEXTS, length=6)
    parts = [np.array([0, 1]), np.array([2, 3])]
    clients = torch_clients(model, tokens, LABELS, parts, learning_rate=0.1)
    alone = TorchTrainer(model, tokens[2:4], LABELS[2:4], learning_rate=0.1, client=1)
    found, expected = (one.update(flatten(model), 1) for one in (clients[1], alone))
    assert np.array_equal(found.vector, expected.vector)


def test_gradients_of_single_samples_are_computed_together(folder: Path) -> None:
    """Per-sample clipping needs them; a data-dependent branch in the forward pass would not do."""
    model = still(folder)
    flat = FlatParameters(model, "refuse")
    tokens = tokenise(folder, TEXTS, length=6)
    gradients = ClientGradients(flat, tokens, LABELS, functional.cross_entropy)
    position = torch.from_numpy(flatten(model))
    rows, _ = gradients._together(position, None)
    for number, row in enumerate(rows):
        alone, _ = gradients.mean(position, torch.tensor([number]))
        assert torch.allclose(row, alone, atol=1e-6)


def test_loading_is_silent_and_puts_the_libraries_settings_back(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = Listener()
    library = logging.getLogger("transformers")
    before = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    library.addHandler(listener)
    try:
        text_classifier(0, folder)
        tokenise(folder, TEXTS, length=6)
        assert listener.said == []
        assert capfd.readouterr() == ("", "")
        assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == before
        AutoModelForSequenceClassification.from_pretrained(folder)
        assert listener.said  # the listener hears the report that was held back
    finally:
        library.removeHandler(listener)


def test_loading_asks_no_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(*address: object, **_: object) -> None:
        asked.append(address)
        raise OSError("no network here")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    text_classifier(0, folder)
    tokenise(folder, TEXTS, length=6)
    assert asked == []


def test_pickled_weights_are_refused(copied: Path) -> None:
    stored = load_file(copied / "model.safetensors")
    torch.save(stored, copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    with pytest.raises(InvalidSetting, match=r"no file named model\.safetensors"):
        text_classifier(0, copied)


def test_an_encoder_with_holes_is_refused(copied: Path) -> None:
    stored = load_file(copied / "model.safetensors")
    del stored["encoder.layer.1.output.dense.weight"]
    save_file(stored, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidSetting, match=r"1 of its weights, bert\.encoder\.layer\.1"):
        text_classifier(0, copied)


def test_an_encoder_of_another_size_is_refused(copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
    with pytest.raises(InvalidSetting, match="path"):
        text_classifier(0, copied)


def test_bad_arguments_are_refused(folder: Path, copied: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"config\.json"):
        text_classifier(0, folder / "nothing")
    with pytest.raises(InvalidSetting, match="classes"):
        text_classifier(0, folder, classes=1)
    for seed in (-1, 2**63):
        with pytest.raises(InvalidSetting, match="seed"):
            text_classifier(seed, folder)
    for wrong in (torch.zeros(2, 5, dtype=torch.int64), torch.zeros(2, 2, 5)):
        with pytest.raises(InvalidSetting, match=r"\(N, 2, length\)"):
            still(folder)(wrong)
    (copied / "config.json").write_text("{")
    with pytest.raises(InvalidSetting, match="is JSON"):
        tokenise(copied, TEXTS)


def test_the_registry_makes_it_from_a_folder(folder: Path) -> None:
    made = create("minilm", 5, path=folder)
    assert np.array_equal(flatten(made), flatten(text_classifier(5, folder)))
    with pytest.raises(InvalidSetting, match="`eris data fetch minilm`"):
        create("minilm", 5)


def test_without_transformers_the_error_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"eris-fl\[transformers\]"):
        text_classifier(0, folder)


@pytest.mark.slow
def test_the_real_weights_are_those_of_the_file() -> None:
    fetch("minilm")
    folder = load_minilm().folder
    model = create("minilm", 0, path=folder)
    known = entry("minilm")
    assert parameter_count(model) == known.parameters
    made = model.classifier.state_dict()  # type: ignore[union-attr]
    stored = load_file(folder / "model.safetensors")
    stored.pop("embeddings.position_ids", None)  # 0..511, which is no weight
    for name, tensor in stored.items():
        assert torch.equal(made[f"bert.{name}"], tensor), name
    tokens = tokenise(folder, ["a good film", "bad"])
    assert tokens.shape[1:] == known.input_shape
    assert tokens[0, 0, :6].tolist() == [101, 1037, 2204, 2143, 102, 0]
    assert model(tokens).shape == (2, known.classes)
