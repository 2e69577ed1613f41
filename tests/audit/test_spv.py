"""SPV-MIA on a tiny language model: its parts against slow oracles, and planted memorisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from eris.audit.roc import roc
from eris.audit.spv import SpvAttack, SpvSettings, Tokens, hidden_words
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data.stories import Tokeniser
from eris.models.causal import CausalLM, next_token_loss, sequence_nll
from eris.training.torch import TorchTrainer, flatten, single_threaded
from support.levels import tells
from support.llama2c import SHAPE, tiny_model, tokens_file

STARTS = Tokeniser.parse(tokens_file()).starts_word
LENGTH = 10


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def texts(count: int, purpose: str = "texts") -> Tokens:
    """Random pieces after the beginning."""
    drawn = Stream(0, purpose).uniform(0, count * LENGTH).reshape(count, LENGTH)
    rows = (259 + drawn * (SHAPE.vocabulary - 259)).astype(np.int64)
    rows[:, 0] = 1
    return rows


def attack_on(model: CausalLM, **changes: object) -> SpvAttack:
    chosen = replace(SpvSettings(paraphrases=4, prompt=3), **changes)  # type: ignore[arg-type]
    return SpvAttack(model, flatten(model), sequence_nll, STARTS, settings=chosen, seed=3)


def fine_tuned(model: CausalLM, rows: Tokens, steps: int = 80) -> Vector:
    """A model that has learnt some texts by heart."""
    tokens, base = torch.from_numpy(rows), flatten(model)
    trainer = TorchTrainer(
        model, tokens, tokens, loss=next_token_loss, optimiser="adamw",
        learning_rate=1e-2, steps=steps,
    )  # fmt: skip
    return base - np.float32(1e-2) * trainer.update(base, 1).vector


words_of = st.lists(st.integers(1, 4), min_size=1, max_size=20)


@settings(deadline=None, derandomize=True)
@given(words_of, st.integers(0, 3), st.integers(1, 3), st.floats(0.05, 1), st.integers(0, 1000))
def test_whole_words_are_hidden_in_spans(
    sizes: list[int], padding: int, span: int, masked: float, seed: int
) -> None:
    """Token 1 begins a word and token 2 goes on with it; the first word may begin with any."""
    row = np.array([0, *(token for size in sizes for token in [1] + [2] * (size - 1))])
    word = np.array([-1, *(number for number, size in enumerate(sizes) for _ in range(size))])
    padded = np.concatenate([row, np.full(padding, -1)])
    starts = np.array([False, True, False])
    chosen_by = SpvSettings(masked=masked, span=span)
    hidden = hidden_words(padded, starts, chosen_by, Stream(seed, "spans"))
    assert not hidden[0]
    assert not hidden[len(row) :].any()
    chosen = set(word[hidden[: len(row)]].tolist())
    assert all(hidden[: len(row)][word == number].all() for number in chosen)
    wanted = max(1, round(masked * len(sizes) / span))
    # At the ends of a text a span may be cut short; elsewhere runs are whole spans.
    assert 1 <= len(chosen) <= wanted * span
    ordered = sorted(chosen)
    edges = [0, *(i for i in range(1, len(ordered)) if ordered[i] > ordered[i - 1] + 1)]
    for start, end in pairwise([*edges, len(ordered)]):
        if ordered[start] > 0 and ordered[end - 1] < len(sizes) - 1:
            assert (end - start) % span == 0


def test_about_the_right_share_is_hidden() -> None:
    row = np.array([0, *[1] * 40])
    third, starts = SpvSettings(masked=0.3, span=2), np.array([False, True])
    hidden = np.stack(
        [hidden_words(row, starts, third, Stream(0, "s", client=k)) for k in range(200)]
    )
    assert abs(hidden[:, 1:].mean() - 0.3) < 0.01
    assert hidden[:, 1:].any(axis=0).all()  # every word is hidden in some paraphrase


def test_paraphrases_change_hidden_words_only(model: CausalLM) -> None:
    attack, rows = attack_on(model), texts(5)
    found = attack.paraphrases(rows)
    assert found.shape == (4, 5, LENGTH)
    for number, copy in enumerate(found):
        for text, row in enumerate(copy):
            stream = Stream(3, "spv-spans", number, text)
            hidden = hidden_words(rows[text], STARTS, attack.settings, stream)
            assert np.array_equal(row[~hidden], rows[text][~hidden])
    assert (found != rows).any(axis=2).all(axis=1).any()
    assert len({copy.tobytes() for copy in found}) == 4


def test_batches_change_nothing(model: CausalLM) -> None:
    rows = texts(5)
    one, many = attack_on(model, scored_together=1), attack_on(model)
    assert np.array_equal(one.paraphrases(rows), many.paraphrases(rows))
    base = flatten(model)
    assert np.allclose(one.losses(base, rows), many.losses(base, rows), atol=1e-6)


def test_the_score_is_the_papers(model: CausalLM) -> None:
    """Text by text, from the model's own probabilities."""
    attack, rows = attack_on(model), texts(3)
    copies = attack.paraphrases(rows)
    target, reference = fine_tuned(model, rows[:1], 5), fine_tuned(model, texts(2, "others"), 5)

    def likelihood(parameters: Vector, row: Tokens) -> float:
        with attack._holding(parameters) as held:
            told = held(torch.from_numpy(row[None]))[0].double().log_softmax(1).numpy()
        return float(np.exp(np.mean([told[i, row[i + 1]] for i in range(LENGTH - 1)])))

    def variation(parameters: Vector, text: int) -> float:
        around = np.mean([likelihood(parameters, copy[text]) for copy in copies])
        return likelihood(parameters, rows[text]) - float(around)

    scores = attack.scores(target, reference, rows, copies)
    for text in range(3):
        expected = variation(target, text) - variation(reference, text)
        assert scores.spv[text] == pytest.approx(expected, abs=1e-7)
        loss = -np.log(likelihood(target, rows[text]))
        assert scores.loss[text] == pytest.approx(-loss, rel=1e-5)
        at_base = -np.log(likelihood(attack.base, rows[text]))
        assert scores.difference[text] == pytest.approx(at_base - loss, abs=1e-4)


def planted(
    model: CausalLM, count: int = 16
) -> tuple[SpvAttack, Tokens, NDArray[np.bool_], Vector]:
    rows, included = texts(count), np.arange(count) % 2 == 0
    return attack_on(model), rows, included, fine_tuned(model, rows[included])


def test_memorised_texts_are_found_and_others_are_not(model: CausalLM) -> None:
    attack, rows, included, target = planted(model, 64)
    elsewhere = fine_tuned(model, texts(32, "others"))
    copies = attack.paraphrases(rows)
    for parameters, knows in ((target, True), (elsewhere, False)):
        reference = attack.reference(attack.written(parameters, texts(4, "prompts")))
        scores = attack.scores(parameters, reference, rows, copies)
        assert tells(scores.spv, included) == knows
        assert tells(scores.difference, included) == knows
    assert roc(attack.scores(target, attack.base, rows, copies).difference, included).auc > 0.95
    assert not attack.scores(attack.base, attack.base, rows, copies).spv.any()


def test_the_target_writes_on_and_the_reference_learns_it(model: CausalLM) -> None:
    attack, _, _, target = planted(model)
    prompts = texts(6, "prompts")
    written = attack.written(target, prompts)
    assert np.array_equal(written[:, :3], prompts[:, :3])
    assert (written >= 0).all()
    assert (written[:, 3:] != prompts[:, 3:]).any(axis=1).all()
    assert not np.array_equal(written, attack.written(attack.base, prompts))
    assert not np.array_equal(written, attack.written(target, prompts, number=1))
    eager = attack_on(model, learning_rate=1e-2, epochs=10)
    for attacker in (attack, eager):
        reference = attacker.reference(written)
        before, after = (attacker.losses(x, written).mean() for x in (attack.base, reference))
        assert after < before
    assert after < before - 0.5


def test_the_module_is_left_as_it_was(model: CausalLM) -> None:
    attack, rows, _, target = planted(model)
    before = flatten(model)
    model.train()
    attack.losses(target, rows)
    assert model.training
    assert np.array_equal(flatten(model), before)


def test_bad_input_is_refused(model: CausalLM) -> None:
    attack, rows = attack_on(model), texts(2)
    short = rows.copy()
    short[1, 1:] = -1
    wrongs: list[Any] = [rows[0], rows.astype(np.int32), rows[:, :1], rows[:0], short]
    for wrong in wrongs:
        with pytest.raises(InvalidSetting, match="tokens"):
            attack.losses(attack.base, wrong)
    with pytest.raises(InvalidSetting, match="shape of the paraphrases"):
        attack.variations(attack.base, rows, rows)
    with pytest.raises(InvalidSetting, match="prompts is 'texts of up to 3 tokens'"):
        attack.written(attack.base, rows[:, :3])
    with pytest.raises(InvalidSetting, match="the model has no method of that name"):
        SpvAttack(torch.nn.Linear(2, 2), np.zeros(6, np.float32), sequence_nll, STARTS)
    with pytest.raises(InvalidSetting, match="shape of the parameter vector"):
        SpvAttack(model, np.zeros(6, np.float32), sequence_nll, STARTS)
    for name, value in (("paraphrases", 0), ("masked", 1.5), ("span", 0), ("prompt", 1)):
        with pytest.raises(InvalidSetting, match=name):
            replace(SpvSettings(), **{name: value})  # type: ignore[arg-type]
