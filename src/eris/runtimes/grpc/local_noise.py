"""Local noise of a node: what a method with local privacy adds at the client, from a cipher.

A simulation draws it from a stream of the run's seed, which anybody can draw again and take off. A
node draws a key from the operating system for every training, and forgets it with the draws: normal
numbers on a grid of 2⁻⁴⁰ of σ, exactly rounded, from AES in counter mode. Training adds them to its
gradients in float64 and rounds to float32, so that ε is a statement about real numbers here as in
the simulator; noise that clients share (:mod:`eris.protocol.secure.noise`) is exact to the end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from eris.core.errors import InvalidSetting
from eris.core.noise import Draws
from eris.methods.privacy import LocalPrivacy
from eris.protocol.secure.noise import CipherDraws
from eris.training.trainer import Learner, PerSampleNoise, PrivateTrainer


@dataclass(frozen=True)
class SecretNoise(PerSampleNoise):
    """Clipping and noise of a node's trainings, each with a key of its own."""

    def draws(self, round: int, client: int) -> Draws:
        """The noise of one training: another one, whichever round it is of."""
        return CipherDraws(os.urandom(32))


def local_noise(privacy: LocalPrivacy, rounds: int, learner: Learner) -> SecretNoise:
    """The noise with which so many rounds of a learner stay within a budget.

    A member gives to a round once at most, also after a restart, so releases are no more than
    rounds; what other runs on the same data have spent is not counted here.
    """
    if not isinstance(learner, PrivateTrainer):
        expected = "one with private_update: the method adds noise to single samples' gradients"
        raise InvalidSetting("the trainer", type(learner).__name__, expected)
    uses = int(getattr(learner, "uses_of_a_sample", 1))
    noise = SecretNoise(privacy.clip, privacy.sigma(rounds, uses))
    noise.draws(0, 0).normal(0, 1)  # whatever is compiled on first use is compiled by now
    return noise
