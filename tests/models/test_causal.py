"""The causal model, on tiny random weights that went through llama2.c's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.data.sources import fetch
from eris.data.stories import Tokeniser, from_llama2c, load_stories15m
from eris.models.causal import CausalLM, causal_lm, drawn_tokens, next_token_loss, sequence_nll
from eris.training.flat import FlatParameters
from eris.training.gradients import ClientGradients
from eris.training.torch import TorchTrainer, flatten, parameter_count, single_threaded
from support.llama2c import SHAPE, Parts, checkpoint, tokens_file

TEXTS = torch.tensor([[1, 260, 264, 263, 270, 259], [1, 261, 262, -1, -1, -1]])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


def folder_of(path: Path, shared: bool = True) -> tuple[Path, Parts]:
    data, parts = checkpoint(shared)
    for name, content in from_llama2c(data, tokens_file()).items():
        (path / name).write_bytes(content)
    return path, parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path)[0]


@pytest.fixture
def model(folder: Path) -> CausalLM:
    return causal_lm(folder).eval()


def normed(x: NDArray[np.float64], weight: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(x / np.sqrt(np.mean(x * x) + 1e-5) * weight)


def rotated(x: NDArray[np.float64], place: int) -> NDArray[np.float64]:
    """Pairs of neighbours, turned by an angle that falls with their place in the head."""
    out = x.copy()
    for i in range(0, len(x), 2):
        angle = place / 10_000 ** (i / len(x))
        out[i] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)
        out[i + 1] = x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
    return out


def told_by_llama2c(parts: Parts, tokens: list[int]) -> NDArray[np.float64]:
    """The oracle: the model as llama2.c computes it, one token and one head after another."""
    head = SHAPE.head
    keys: list[list[NDArray[np.float64]]] = [[] for _ in range(SHAPE.layers)]
    values: list[list[NDArray[np.float64]]] = [[] for _ in range(SHAPE.layers)]
    logits = []
    for place, token in enumerate(tokens):
        x = parts["embedding"][token].astype(np.float64)
        for layer in range(SHAPE.layers):
            inner = normed(x, parts["rms_att"][layer])
            query = parts["wq"][layer] @ inner
            keys[layer].append(rotated(parts["wk"][layer] @ inner, place))
            values[layer].append(parts["wv"][layer] @ inner)
            heads = []
            for number in range(SHAPE.heads):
                asked = rotated(query[number * head : (number + 1) * head], place)
                weights = np.exp([asked @ key / np.sqrt(head) for key in keys[layer]])
                heads.append(weights / weights.sum() @ np.array(values[layer]))
            x = x + parts["wo"][layer] @ np.concatenate(heads)
            inner = normed(x, parts["rms_ffn"][layer])
            gate = parts["w1"][layer] @ inner
            x = x + parts["w2"][layer] @ (gate / (1 + np.exp(-gate)) * (parts["w3"][layer] @ inner))
        classifier = parts.get("classifier", parts["embedding"])
        logits.append(classifier @ normed(x, parts["rms_final"]))
    return np.array(logits)


@pytest.mark.parametrize("shared", [True, False])
def test_the_logits_are_llama2cs(tmp_path: Path, shared: bool) -> None:
    folder, parts = folder_of(tmp_path, shared)
    with torch.no_grad():
        logits = causal_lm(folder).eval()(TEXTS[:1])[0].numpy()
    expected = told_by_llama2c(parts, TEXTS[0].tolist())
    assert np.abs(logits - expected).max() < 1e-4
    assert np.abs(expected).max() > 1  # there is something to compare


def test_what_fills_up_a_text_changes_nothing(model: CausalLM) -> None:
    with torch.no_grad():
        padded, alone = model(TEXTS)[1, :3], model(TEXTS[1:, :3])[0]
        assert torch.allclose(padded, alone, atol=1e-6)
        losses = sequence_nll(model(TEXTS), TEXTS)
        assert torch.allclose(losses[1], sequence_nll(model(TEXTS[1:, :3]), TEXTS[1:, :3])[0])


def test_the_loss_is_the_mean_cross_entropy_of_the_next_token(model: CausalLM) -> None:
    with torch.no_grad():
        logits = model(TEXTS)
    expected = [
        functional.cross_entropy(logits[0, :5], TEXTS[0, 1:]),
        functional.cross_entropy(logits[1, :2], TEXTS[1, 1:3]),
    ]
    assert torch.allclose(sequence_nll(logits, TEXTS), torch.stack(expected))
    assert torch.allclose(next_token_loss(logits, TEXTS), torch.stack(expected).mean())


def test_it_trains(model: CausalLM) -> None:
    trainer = TorchTrainer(
        model, TEXTS, TEXTS, loss=next_token_loss, optimiser="adamw", learning_rate=5e-3, steps=30
    )
    start = flatten(model)
    assert start.shape == (parameter_count(model),)
    update = trainer.update(start, 1)
    after = trainer.update(start - np.float32(5e-3) * update.vector, 2)
    assert after.metrics["loss"] < update.metrics["loss"] / 2


def test_gradients_of_single_texts_are_computed_together(model: CausalLM) -> None:
    gradients = ClientGradients(FlatParameters(model), TEXTS, TEXTS, next_token_loss)
    position = torch.from_numpy(flatten(model))
    rows, _ = gradients._together(position, None)
    for number, row in enumerate(rows):
        alone, _ = gradients.mean(position, torch.tensor([number]))
        assert torch.allclose(row, alone, atol=1e-5)
    mean, _ = gradients.mean(position, None)
    assert torch.allclose(rows.mean(0), mean, atol=1e-5)


def refilled_slowly(model: CausalLM, tokens: Tensor, hidden: Tensor, draws: Tensor) -> Tensor:
    """The oracle: one text and one token after another, from the whole text before it."""
    filled = tokens.clone()
    for text in range(len(tokens)):
        for place in range(1, tokens.shape[1]):
            if hidden[text, place]:
                with torch.no_grad():
                    last = model(filled[text : text + 1, :place])[0, -1]
                reached = np.cumsum(last.double().softmax(0).numpy())
                filled[text, place] = int(np.argmax(reached > float(draws[text, place])))
    return filled


def test_hidden_tokens_are_drawn_from_what_comes_before_them(model: CausalLM) -> None:
    tokens = torch.cat([TEXTS, TEXTS.flip(0)])
    stream = Stream(0, "refill")
    draws = torch.from_numpy(stream.uniform(0, 24).reshape(4, 6))
    hidden = torch.from_numpy(stream.uniform(100, 24).reshape(4, 6) < 0.5)
    hidden[:, 0] = False
    filled = model.refill(tokens, hidden, draws)
    assert torch.equal(filled, refilled_slowly(model, tokens, hidden, draws))
    assert torch.equal(filled[~hidden], tokens[~hidden])
    assert not torch.equal(filled, tokens)
    nothing = torch.zeros_like(hidden)
    assert torch.equal(model.refill(tokens, nothing, draws), tokens)


def test_tokens_are_drawn_by_their_probability() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log().repeat(5, 1)
    draws = torch.tensor([0.0, 0.499, 0.501, 0.76, 1 - 1e-9], dtype=torch.float64)
    assert drawn_tokens(logits, draws).tolist() == [0, 0, 1, 2, 2]
    assert drawn_tokens(torch.zeros(1, 2), torch.tensor([0.5])).tolist() == [1]  # exceeds it


def test_bad_tokens_are_refused(model: CausalLM) -> None:
    for wrong in (torch.ones(2, 3), torch.ones(6, dtype=torch.int64)):
        with pytest.raises(InvalidSetting, match=r"tokens .* integers \(N, length\)"):
            model(wrong)
    with pytest.raises(InvalidSetting, match="length is 13; expected at most 12"):
        model(torch.ones(1, 13, dtype=torch.int64))
    first = torch.zeros(TEXTS.shape, dtype=torch.bool)
    first[0, 0] = True
    for hidden in (first, first[:, :3]):
        with pytest.raises(InvalidSetting, match="no first token hidden"):
            model.refill(TEXTS, hidden, torch.zeros(TEXTS.shape))


def test_bad_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    for path in (None, tmp_path / "nothing"):
        with pytest.raises(InvalidSetting, match="`eris data fetch stories15m`"):
            causal_lm(path)
    stored = load_file(folder / "model.safetensors")
    del stored["model.layers.1.mlp.up_proj.weight"]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidSetting, match=r"1 of its weights, model\.layers\.1\.mlp"):
        causal_lm(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))
    with pytest.raises(InvalidSetting, match="path"):
        causal_lm(folder)


@pytest.mark.slow
def test_the_real_weights_tell_a_story() -> None:
    fetch("stories15m")
    folder = load_stories15m().folder
    model, tokeniser = causal_lm(folder).eval(), Tokeniser.load(folder)
    assert parameter_count(model) == 15_191_712
    tokens = tokeniser.encode("Once upon a time")
    with torch.no_grad():
        for _ in range(20):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        story = (
            "Once upon a time, there was a little boy named Tom. Tom had a red ball. He liked to "
            "play with it in the garden. One day, the ball rolled under a big tree."
        )
        rows = torch.from_numpy(tokeniser.encode_many([story], 64))
        assert float(sequence_nll(model(rows), rows)) < 1.5
    told = tokeniser.decode(tokens)
    assert told.startswith("Once upon a time, there was a little girl named Lily. She loved to")
