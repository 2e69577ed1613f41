"""What an owner is sent under masks, held against the values behind it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from eris.experiments.federations import demo
from eris.experiments.federations.masked import MaskedView, Sent, masked_view
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.protocol.messages import Contribution
from eris.protocol.secure.sums import mask
from eris.protocol.transcript import Transcript
from eris.testing import initial_model
from support.crowd import Crowd

N, CLIENTS, OWNERS = 3000, 6, 3


def recorded(secure: str) -> tuple[Transcript, Federation]:
    crowd = Crowd(CLIENTS, N)
    made = Federation(
        crowd, initial_model(N), ERIS(aggregators=OWNERS, secure=secure),
        samples=[crowd.samples(client) for client in range(CLIENTS)], min_included=4,
    )  # fmt: skip
    transcript = made.fit(2, progress=False, record=True).transcript
    assert transcript is not None
    return transcript, made


@pytest.fixture(scope="module")
def sent() -> Sent:
    """Of the plain run, whose updates are the same."""
    transcript, made = recorded("none")
    agreement = made.agreement
    assert agreement is not None
    return {
        (transcript.membership.members[one.header.sender], one.header.round, one.header.key):
            agreement.coding.read(one, agreement.segments(one.header.round)[one.header.key])
        for one in (record.message for record in transcript.records)
        if isinstance(one, Contribution)
    }  # fmt: skip


def seen(sent: Sent) -> MaskedView:
    transcript, _ = recorded("2 of 3")
    found = masked_view(transcript, "client-1", sent)
    assert found is not None
    return found


def test_words_are_uniform_and_tell_nothing_of_values(sent: Sent) -> None:
    found = seen(sent)
    assert found.contributions == 2 * (CLIENTS - 1)
    assert found.of_an_update == N // OWNERS
    assert found.values == found.contributions * found.of_an_update
    assert found.uniform > 1e-6
    assert abs(found.correlation) < 2 * found.chance


@pytest.mark.filterwarnings("ignore::eris.federation.RefusedWarning")
def test_words_without_masks_are_found(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sum is opened either: what helpers take off was never put on."""

    def bare(head: Any, words: Any, root: Any, shape: Any, seeds: Any) -> Any:
        return mask(head, words, root, shape, {})

    monkeypatch.setattr("eris.protocol.secure.sending.mask", bare)
    found = seen(sent)
    assert found.uniform < 1e-6
    assert found.correlation > 0.5, "values times samples, which differ from client to client"


def test_an_owner_that_was_sent_nothing_has_no_view(sent: Sent) -> None:
    transcript, _ = recorded("2 of 3")
    assert masked_view(transcript, f"client-{OWNERS}", sent) is None
    assert masked_view(transcript, "client-1", {}) is None


def test_the_demonstration_says_what_was_kept_from_an_owner() -> None:
    out = io.StringIO()
    view = MaskedView(10, 10_000, 1000, 0.5, 0.001)
    assert np.isclose(view.chance, 0.0329)
    demo._report_masks("ben", view, Console(file=out, width=300, highlight=False))
    assert "ben would have read up to 1,000 values of each other node's update" in out.getvalue()
    assert "chi-square p = 0.50" in out.getvalue()
