"""The canaries of a run: which samples of a client may be in its training, and which are."""

from __future__ import annotations

import numpy as np
import torch

from eris.audit.candidates import Candidates
from eris.core.errors import InvalidSetting
from eris.data import canaries, holdout
from eris.experiments.runs.holdings import Tokenise, dealt, loaded, readable
from eris.experiments.runs.recipe import DataRecipe


def canaries_of(recipe: DataRecipe, seed: int, tokenise: Tokenise | None = None) -> Candidates:
    """Deal a recipe's data again, and keep the canaries with their coins.

    The coins are the audit's: no observer is given them.
    """
    if not recipe.canaries:
        expected = (
            "a share above 0: half of them are trained on by a fair coin each; "
            "or ask about your own samples with `--candidates FILE`"
        )
        raise InvalidSetting("data.canaries", recipe.canaries, expected)
    inputs, targets, users = loaded(recipe)
    split = canaries(
        holdout(dealt(recipe, targets, users, seed), recipe.held_out, seed).train,
        recipe.canaries,
        seed,
    )
    places = np.concatenate(split.canaries)
    if len(places) == 0:
        expected = "enough samples a client that the share of canaries is at least one of them"
        raise InvalidSetting("data.canaries", recipe.canaries, expected)
    client = np.repeat(np.arange(len(split.canaries)), [len(part) for part in split.canaries])
    return Candidates(
        torch.from_numpy(readable(recipe.name, inputs[places], tokenise)),
        torch.from_numpy(targets[places].astype(np.int64)),
        client,
        np.concatenate(split.included),
    )
