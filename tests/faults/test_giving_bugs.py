"""Bugs put on purpose into what a client gives to a round are caught in simulated worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eris.core.vectors import Vector
from eris.protocol.agreement import Key
from eris.protocol.round.giving import Giving, Job
from eris.protocol.round.ownership import Ownership
from eris.protocol.schemes import Sender
from eris.testing.shape import Shape
from eris.testing.weather import Trouble
from support.bugs import catch

SMALL = Shape(members=4, shards=3, rounds=14, min_included=2)
COME_AND_GO = (Trouble.CRASH, Trouble.LEAVE, Trouble.DROP, Trouble.DELAY)


def permit(patch: pytest.MonkeyPatch, permits: Callable[[Ownership, int], bool]) -> None:
    """Clients contribute by another rule than the one by which owners publish."""
    take, contributions = Giving.take, Giving.contributions

    def by_the_rule(give: Callable[..., Any]) -> Callable[..., Any]:
        def given(self: Giving, *asked: Any, **how: Any) -> Any:
            with patch.context() as for_now:
                for_now.setattr(Ownership, "permits", permits)
                return give(self, *asked, **how)

        return given

    patch.setattr(Giving, "take", by_the_rule(take))
    patch.setattr(Giving, "contributions", by_the_rule(contributions))


def test_a_client_that_contributes_again_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: one content of a client for a segment and round."""
    monkeypatch.setattr(Giving, "abstains", False)
    permit(monkeypatch, lambda ownership, round: round <= ownership.through)
    catch(monkeypatch, "contributed two contents", *COME_AND_GO, most=40, shape=SMALL)


def test_a_client_that_contributes_without_a_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: one epoch of a client's contributions to a round."""
    permit(monkeypatch, lambda ownership, round: not ownership.abstains(round))
    catch(monkeypatch, "contributed in epochs", *Trouble, most=80, shape=SMALL)


def test_a_client_that_names_the_version_at_the_time_of_sending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Caught by: one content of a client for a segment and round."""
    train = Giving.train

    def train_from_whatever_comes(self: Giving) -> Job:
        job = train(self)
        self._trained_from = self._node.replica.versions  # the same object, not a copy
        return job

    monkeypatch.setattr(Giving, "train", train_from_whatever_comes)
    law = "contributed two contents|did not send its part|is not the mean"
    catch(monkeypatch, law, *COME_AND_GO, most=60, shape=replace(SMALL, kept=0.5))


def test_a_client_that_sends_another_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: what is sent is the slice of the update that was trained."""
    prepare = Sender.prepare

    def prepare_shifted(self: Sender, update: Vector, *given: Any) -> Mapping[Key, Vector]:
        return prepare(self, np.roll(update, 1), *given)

    monkeypatch.setattr(Sender, "prepare", prepare_shifted)
    catch(monkeypatch, "did not send its part of what it trained", shape=SMALL)


def test_a_client_that_does_not_say_that_it_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by: those that are connected make progress."""
    monkeypatch.setattr(Giving, "_excuse", lambda *_: [])
    law = "no progress although enough are connected|has no result in fine weather"
    catch(monkeypatch, law, *COME_AND_GO, Trouble.OUTAGE, most=100, shape=SMALL)
