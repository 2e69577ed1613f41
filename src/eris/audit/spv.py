"""SPV-MIA: was a text in the training data of a causal language model?

Fu et al., "Practical membership inference attacks against fine-tuned large language models via
self-prompt calibration", NeurIPS 2024. With p(x) = exp(−mean loss of a token), a member tends to be
a local maximum of the likelihood:

    variation_θ(x) = p_θ(x) − mean over paraphrases x̃ of p_θ(x̃)
    score(x)       = variation_target(x) − variation_reference(x)

The reference says how a model varies that knows texts of this kind but not this text: the base
model, fine-tuned on what the target itself writes on from short prompts of other texts.

The paper's paraphrases are masked words refilled by T5. Here the base model refills them: spans of
two words, 30 % of the words, are drawn anew from what comes before them, from left to right, each
with as many tokens as it had. That needs no other model and no text after the gap is looked at.

Models are flat vectors, put into one module when they are needed. What is drawn comes from streams
named by (seed, purpose, number of the paraphrase or model, number of the text), so it depends on
neither batches nor what else is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from eris.core.errors import InvalidSetting, require
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.flat import FlatParameters
from eris.training.torch import TorchTrainer

Tokens = NDArray[np.int64]
"""Texts (N, length), filled up with −1 behind their end; the first token begins every text."""
Scores = NDArray[np.float64]
Nll = Callable[[Tensor, Tensor], Tensor]
"""From logits (N, length, vocabulary) and tokens to every text's mean loss of a token (N,)."""
Refill = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Draws the hidden (N, length) tokens anew, from numbers in [0, 1): ``CausalLM.refill``."""


@dataclass(frozen=True)
class SpvSettings:
    """How paraphrases are made and the reference is trained.

    >>> SpvSettings(masked=0)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: masked is 0; expected a number in (0, 1]
    """

    paraphrases: int = 10
    masked: float = 0.3
    span: int = 2
    prompt: int = 8
    """Tokens of a prompt, the beginning of the text among them."""
    epochs: int = 2
    learning_rate: float = 5e-5
    batch_size: int = 8
    scored_together: int = 16
    """Texts in a batch without gradients: a matter of memory and speed alone."""

    def __post_init__(self) -> None:
        for name in ("paraphrases", "span", "epochs", "batch_size", "scored_together"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.masked <= 1, "masked", self.masked, "a number in (0, 1]")
        require(self.prompt >= 2, "prompt", self.prompt, "at least 2: the beginning and a token")


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores of membership, higher for a likelier member, all of them of the same texts.

    ``loss`` is −(mean loss of a token) and ``difference`` the base model's loss minus the target's:
    what a naive attacker would do.
    """

    spv: Scores
    loss: Scores
    difference: Scores


class SpvAttack:
    """The attack on any number of targets that were fine-tuned from one base model.

    ``model`` gives the architecture, logits from tokens, and is scratch space; its ``refill`` draws
    with whatever parameters it holds. ``starts_word`` says of every token whether a word begins
    with it.
    """

    def __init__(
        self,
        model: nn.Module,
        base: Vector,
        nll: Nll,
        starts_word: NDArray[np.bool_],
        *,
        settings: SpvSettings | None = None,
        seed: int = 0,
    ) -> None:
        refill: Refill | None = getattr(model, "refill", None)
        if refill is None:
            raise InvalidSetting("refill", None, "a function: the model has no method of that name")
        self._refill = refill
        self._flat = FlatParameters(model)
        self._flat.checked(base)
        self.base, self.nll, self.starts_word = base, nll, starts_word
        self.settings, self.seed = settings or SpvSettings(), seed

    def losses(self, parameters: Vector, tokens: Tokens) -> Scores:
        """Every text's mean loss of a token under a model."""
        _check(tokens)
        found, size = np.empty(len(tokens)), self.settings.scored_together
        with self._holding(parameters) as model:
            for start in range(0, len(tokens), size):
                some = torch.from_numpy(tokens[start : start + size])
                found[start : start + size] = self.nll(model(some), some).double().numpy()
        return found

    def paraphrases(self, tokens: Tokens) -> Tokens:
        """Paraphrases (paraphrases, N, length) of texts, refilled by the base model."""
        _check(tokens)
        copies = np.repeat(tokens[None], self.settings.paraphrases, axis=0)
        hidden, draws = np.zeros(copies.shape, np.bool_), np.empty(copies.shape)
        for number in range(len(copies)):
            for text, row in enumerate(tokens):
                spans = Stream(self.seed, "spv-spans", number, text)
                hidden[number, text] = hidden_words(row, self.starts_word, self.settings, spans)
                drawn = Stream(self.seed, "spv-paraphrase", number, text)
                draws[number, text] = drawn.uniform(0, len(row))
        flat = (-1, tokens.shape[1])
        return self._refilled(
            self.base, copies.reshape(flat), hidden.reshape(flat), draws.reshape(flat)
        ).reshape(copies.shape)

    def written(self, target: Vector, others: Tokens, number: int = 0) -> Tokens:
        """What the target writes on from the first tokens of other texts; ``number`` names it."""
        _check(others)
        start, length = self.settings.prompt, others.shape[1]
        if start >= length or (others[:, :start] < 0).any():
            expected = f"at least {start} tokens of each text, and space to write on"
            raise InvalidSetting("prompts", f"texts of up to {length} tokens", expected)
        hidden = np.zeros(others.shape, np.bool_)
        hidden[:, start:] = True
        rows = range(len(others))
        draws = [Stream(self.seed, "spv-prompted", number, i).uniform(0, length) for i in rows]
        return self._refilled(target, others, hidden, np.stack(draws))

    def reference(self, written: Tokens) -> Vector:
        """The base model after fine-tuning with AdamW on texts that the target wrote."""
        _check(written)
        texts, settings = torch.from_numpy(written), self.settings
        trainer = TorchTrainer(
            self._flat.module,
            texts,
            texts,
            loss=lambda logits, tokens: self.nll(logits, tokens).mean(),
            optimiser="adamw",
            learning_rate=settings.learning_rate,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=self.seed,
        )
        update = trainer.update(self.base, 0).vector
        return self.base - np.float32(settings.learning_rate) * update

    def variations(self, parameters: Vector, tokens: Tokens, paraphrases: Tokens) -> Scores:
        """p(x) − mean p(x̃) of every text under a model."""
        if paraphrases.ndim != 3 or paraphrases.shape[1:] != tokens.shape:
            expected = f"(some, {tokens.shape[0]}, {tokens.shape[1]})"
            raise InvalidSetting("shape of the paraphrases", paraphrases.shape, expected)
        rows = np.concatenate([tokens[None], paraphrases]).reshape(-1, tokens.shape[1])
        likelihoods = np.exp(-self.losses(parameters, rows)).reshape(-1, len(tokens))
        return np.asarray(likelihoods[0] - likelihoods[1:].mean(axis=0))

    def scores(
        self, target: Vector, reference: Vector, tokens: Tokens, paraphrases: Tokens
    ) -> TextScores:
        """All scores of texts against one target."""
        loss = self.losses(target, tokens)
        return TextScores(
            spv=self.variations(target, tokens, paraphrases)
            - self.variations(reference, tokens, paraphrases),
            loss=-loss,
            difference=self.losses(self.base, tokens) - loss,
        )

    def _refilled(
        self, parameters: Vector, tokens: Tokens, hidden: NDArray[np.bool_], draws: Scores
    ) -> Tokens:
        together = 8 * self.settings.scored_together  # a token of each at a time, not whole texts
        filled = np.empty_like(tokens)
        with self._holding(parameters):
            for start in range(0, len(tokens), together):
                piece = slice(start, start + together)
                given = (torch.from_numpy(part[piece]) for part in (tokens, hidden, draws))
                filled[piece] = self._refill(*given).numpy()
        return filled

    @contextmanager
    def _holding(self, parameters: Vector) -> Iterator[nn.Module]:
        """The module with these parameters, without gradients or dropout; then as it was."""
        flat = self._flat
        position, before, training = flat.checked(parameters), flat.read(), flat.module.training
        flat.module.eval()
        try:
            flat.write(position)
            with torch.no_grad():
                yield flat.module
        finally:
            flat.module.train(training)
            flat.write(before)


def hidden_words(
    row: Tokens, starts_word: NDArray[np.bool_], settings: SpvSettings, stream: Stream
) -> NDArray[np.bool_]:
    """Which tokens of one text a paraphrase draws anew: whole words, in spans, by lot.

    The words are cut into spans from a random place on, and spans are hidden in a random order
    until ``masked`` of the words are, to the nearest span and one at least.

    >>> words = np.array([False, True, False, True])
    >>> one = SpvSettings(masked=0.5, span=1)
    >>> hidden_words(np.array([0, 1, 2, 3, -1]), words, one, Stream(0, "example")).tolist()
    [False, False, False, True, False]
    """
    text = row >= 0
    begins = text & starts_word[np.maximum(row, 0)]
    begins[:1], begins[1:2] = False, text[1:2]  # what is no text, and the first word
    word = np.cumsum(begins) - 1
    count = int(begins.sum())
    shift = int(stream.words(0, 1)[0]) % settings.span
    span = (np.arange(count) + shift) // settings.span
    spans = int(span[-1]) + 1
    order = np.argsort(stream.words(1, spans), kind="stable")
    chosen = order[: max(1, round(settings.masked * count / settings.span))]
    hidden = np.zeros(len(row), np.bool_)
    hidden[1:] = text[1:] & np.isin(span[word[1:]], chosen)
    return hidden


def _check(tokens: Tokens) -> None:
    if tokens.ndim != 2 or tokens.dtype != np.int64 or tokens.shape[1] < 2:
        found = f"{tokens.dtype} {tokens.shape}"
        raise InvalidSetting("tokens", found, "int64 (N, length), the first token begins a text")
    if len(tokens) == 0 or (tokens[:, :2] < 0).any():
        empty = "no text at all" if len(tokens) == 0 else "a text without tokens"
        raise InvalidSetting("tokens", empty, "the beginning and at least one token in each text")
