"""A causal language model from a local Hugging Face folder, and its loss.

stories15M's 15.2 million parameters (``eris data fetch stories15m``) stand in for the papers'
GPT-Neo. A trainer hands a model one tensor: the tokens (N, length), integers, short texts filled up
at their end with −1. They are the targets, too. Attention looks back only, so what fills up a text
changes nothing before it and needs no mask.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eris.core.errors import InvalidSetting
from eris.models.pretrained import pretrained

FETCH = "`eris data fetch stories15m` brings one"


class CausalLM(nn.Module):
    """A causal model of transformers whose input is one tensor and whose output logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def longest(self) -> int:
        """How many tokens a text may have."""
        config: Any = self.model.config
        return int(config.max_position_embeddings)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (N, length, vocabulary) of tokens (N, length): what comes after each of them."""
        self._check(tokens)
        length = tokens.shape[1]
        # What is added to the attention, in full: transformers branches on plain masks, and a
        # branch on data is what `vmap` cannot take (gradients of single samples).
        hidden = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
        output = self.model(
            input_ids=tokens.clamp(min=0),
            attention_mask=hidden[None, None],
            use_cache=False,
            return_dict=True,
        )
        logits: Tensor = output.logits
        return logits

    @torch.no_grad()
    def refill(self, tokens: Tensor, hidden: Tensor, draws: Tensor) -> Tensor:
        """The tokens with those that are ``hidden`` (N, length) drawn anew, from left to right.

        A token is drawn from what the model gives after all tokens before it, refilled ones among
        them: the first whose cumulative probability exceeds the number ``draws`` (N, length) in
        [0, 1) has there. The first token of a text cannot be hidden. To write on from prompts, hide
        all that comes after them.
        """
        self._check(tokens)
        if hidden.shape != tokens.shape or draws.shape != tokens.shape or hidden[:, 0].any():
            found = f"{tuple(hidden.shape)}, {tuple(draws.shape)}"
            expected = f"both {tuple(tokens.shape)}, and no first token hidden"
            raise InvalidSetting("hidden, draws", found, expected)
        filled, past = tokens.clone(), None
        core: Any = self.model
        for place in range(1, tokens.shape[1]):
            if not hidden[:, place:].any():
                break
            # The cache keeps what was computed for earlier places; one place a step is new.
            output = core.model(
                input_ids=filled[:, place - 1 : place].clamp(min=0),
                past_key_values=past,
                use_cache=True,
                return_dict=True,
            )
            past, rows = output.past_key_values, hidden[:, place]
            if rows.any():
                logits = core.lm_head(output.last_hidden_state[rows, 0])
                filled[rows, place] = drawn_tokens(logits, draws[rows, place])
        return filled

    def _check(self, tokens: Tensor) -> None:
        if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64):
            found = f"{tokens.dtype} {tuple(tokens.shape)}"
            raise InvalidSetting("tokens", found, "integers (N, length), −1 behind a text")
        if tokens.shape[1] > self.longest:
            raise InvalidSetting("length", tokens.shape[1], f"at most {self.longest} tokens")


def causal_lm(path: str | os.PathLike[str] | None) -> CausalLM:
    """The causal model in the folder ``path``, all of whose weights are there.

    Weights come from safetensors files only, nothing is looked up on the network, no code of the
    folder runs.
    """
    if path is None or not (Path(path) / "config.json").is_file():
        found = None if path is None else str(path)
        expected = f"a Hugging Face model folder, with a config.json; {FETCH}"
        raise InvalidSetting("path", found, expected)
    folder = Path(path)
    model, missing = pretrained("AutoModelForCausalLM", folder)
    if lost := sorted(missing):
        found = f"{len(lost)} of its weights, {lost[0]} first, are missing"
        raise InvalidSetting("path", str(folder), f"all weights of the model; {found}")
    return CausalLM(model)


def drawn_tokens(logits: Tensor, draws: Tensor) -> Tensor:
    """Of each row of logits, the first token whose cumulative probability exceeds its draw.

    >>> drawn_tokens(torch.tensor([[0.0, 0.0]]).log_softmax(1), torch.tensor([0.5]))
    tensor([1])
    """
    reached = logits.double().softmax(1).cumsum(1)
    # The sum may end below 1: beyond it there is no token, so the last one it is.
    found = torch.searchsorted(reached, draws.double()[:, None], right=True)[:, 0]
    return found.clamp(max=logits.shape[1] - 1)


def sequence_nll(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean over each text's tokens of −ln p(token | those before it): (N,).

    >>> sequence_nll(torch.zeros(1, 3, 4), torch.tensor([[1, 2, -1]]))
    tensor([1.3863])
    """
    expected = tokens[:, 1:].long()
    # Not `cross_entropy`: it would make a second tensor as large as the logits.
    given = logits[:, :-1]
    chosen = given.gather(2, expected.clamp(min=0)[..., None])[..., 0]
    losses = (given.logsumexp(2) - chosen) * (expected >= 0)
    return losses.sum(1) / (expected >= 0).sum(1).clamp(min=1)


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """The loss of a batch for a trainer: every text counts alike, however long it is.

    So a batch's gradient is the mean of its texts' own, which a mean over all tokens is not.
    """
    return sequence_nll(logits, tokens).mean()
