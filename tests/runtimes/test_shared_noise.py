"""Shared noise in the simulator: opened sums hold it, exactly as much as was promised."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eris.audit.watch import Watch
from eris.core.combine import FixedPoint
from eris.core.errors import InvalidSetting, PrivacyWarning
from eris.core.exact_clip import add_clipped
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.privacy import LocalPrivacy
from eris.methods.registry import create
from eris.protocol.agreement import Key
from eris.protocol.messages import Contribution, Result
from eris.protocol.observers import Observer
from eris.protocol.secure.gauge import WARN, measured
from eris.protocol.secure.noise import NoiseKeys
from eris.protocol.secure.noise_terms import SharedNoise
from eris.protocol.secure.noising import GAUGE, NoiseFault, SharedNoising, spread
from eris.protocol.secure.simulated import Opener
from eris.runtimes.cohort import Cohort
from eris.runtimes.station import Place, Stations
from eris.testing import assert_same_bits
from eris.training.population import Trainers
from eris.training.trainer import LocalUpdate, PerSampleClip

N, CLIENTS, SAMPLES, CLIP = 6000, 10, 8, 0.5
START = np.zeros(N, np.float32)
USUAL = FixedPoint()


class Fixed:
    """A client whose samples have the same gradients whatever the model."""

    def __init__(self, number: int, samples: int = SAMPLES) -> None:
        drawn = Stream(3, "gradients", 0, number).normal(0, samples * N)
        self.rows = (drawn.reshape(samples, N) / math.sqrt(N)).astype(np.float32)

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        return LocalUpdate(self.rows.mean(0), len(self.rows))

    def check_clipping(self, parameters: Vector) -> None:
        """Its samples never meet."""

    def clipped_update(self, parameters: Vector, round: int, clip: PerSampleClip) -> LocalUpdate:
        rows = clip.select(self.rows)
        content = np.zeros(rows.shape[1], np.int64)
        add_clipped(content, rows, clip.clip, clip.places)
        return LocalUpdate(np.zeros(N, np.float32), len(self.rows), content=content)


TRAINERS = [Fixed(number) for number in range(CLIENTS)]


def federation(
    epsilon: float = 8.0,
    trainers: Sequence[Fixed] = TRAINERS,
    precision: FixedPoint = USUAL,
    **method: Any,
) -> Federation:
    usual: dict[str, Any] = {"aggregators": 3, "secure": "2 of 3"}
    made = ERIS(privacy=LocalPrivacy(epsilon, clip=CLIP), **(usual | method))
    return Federation(
        Trainers(trainers), START, made, samples=[len(one.rows) for one in trainers], seed=4,
        rule=server_rule("fedavg", learning_rate=1.0), precision=precision,
    )  # fmt: skip


def residue(made: Federation) -> tuple[NDArray[np.float64], SharedNoise]:
    """What the first round's mean holds beside the clipped gradients, times all weights."""
    model = made.fit(1, progress=False).model
    assert made.agreement is not None
    noise = made.agreement.settings.noise
    assert noise is not None
    rows = np.concatenate([one.rows for one in TRAINERS]).astype(np.float64)
    if noise.protects == "client":
        rows = np.stack([one.rows.mean(0) for one in TRAINERS]).astype(np.float64)
    scales = np.minimum(1, CLIP / np.linalg.norm(rows, axis=1))
    weight = noise.divisor(SAMPLES * CLIENTS)
    return -model.astype(np.float64) * weight - scales @ rows, noise


@pytest.mark.parametrize("protects", ["sample", "client"])
def test_an_opened_sum_is_the_clipped_sum_and_the_noise_of_all(protects: str) -> None:
    left, noise = residue(federation(protects=protects))
    assert abs(spread(left, noise.std * math.sqrt(CLIENTS))) < 5
    assert noise.std > CLIP / 10, "so that it is noise that is looked at"


@pytest.mark.parametrize("protects", ["sample", "client"])
def test_noise_larger_than_the_agreed_range_of_values_is_published(protects: str) -> None:
    """The range is of updates; noise that hides them well is beyond it."""
    left, noise = residue(federation(0.1, precision=FixedPoint(2.0**-6), protects=protects))
    assert np.abs(left).max() / noise.divisor(SAMPLES * CLIENTS) > 2.0**-6
    assert abs(spread(left, noise.std * math.sqrt(CLIENTS))) < 5


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_noise_of_another_size_is_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own test of what it drew would stop it first; here it looks away."""
    words = NoiseKeys.add

    def drawn(self: NoiseKeys, content: Any, std: float, fine_bits: int) -> Any:
        return words(self, content, factor * std, fine_bits)

    monkeypatch.setattr(NoiseKeys, "add", drawn)
    with pytest.raises(NoiseFault, match="standard deviations off in size"):
        residue(federation())
    monkeypatch.setattr(SharedNoising, "_examine", lambda *_: None)
    # Every member sees it as well, in the gauge coordinates.
    with pytest.warns(PrivacyWarning, match="the noise of round 1 is .* deviations too (sm|la)"):
        left, noise = residue(federation())
    assert abs(spread(left, noise.std * math.sqrt(CLIENTS))) > 10


def test_kept_parts_are_what_is_clipped_and_a_rotated_basis_has_noise_of_its_own() -> None:
    made = federation(kept_fraction=0.3, basis="rotated")
    model = made.fit(2, progress=False).model
    assert np.isfinite(model).all()
    assert np.abs(model).max() > 0


@pytest.mark.parametrize("kept", [{}, {"kept_fraction": 0.05, "basis": "rotated"}])
def test_gauge_coordinates_travel_whatever_is_kept_and_are_no_part_of_the_model(
    kept: dict[str, Any],
) -> None:
    made = federation(**kept)
    fit = made.fit(2, progress=False, record=True)
    agreement = made.agreement
    assert agreement is not None
    assert fit.transcript is not None
    gauge = agreement.gauge
    assert gauge == max(agreement.keys)
    assert not len(agreement.segments(1)[gauge].coordinates)
    sent = [one.message for one in fit.transcript.records if one.message.header.key == gauge]
    counts = {one.payload.encoded.count for one in sent if isinstance(one, Contribution)}
    assert counts == {GAUGE}
    results = [one for one in sent if isinstance(one, Result)]
    assert [one.header.round for one in results] == [1, 2]
    for result in results:
        assert len(result.included) == CLIENTS
        assert abs(measured(result, agreement.settings).off) < 5
        half = replace(result, included=frozenset(range(CLIENTS // 2)))
        assert abs(measured(half, agreement.settings).off) > WARN
    assert fit.model.shape == (N,)
    assert all(record.noise == "" for record in fit.history)


def test_openers_of_a_noisy_run_put_the_gauge_nowhere() -> None:
    """Whoever watches puts pieces together: those of the gauge have no place in a model."""
    made = federation()
    transcript = made.fit(2, progress=False, record=True).transcript
    assert made.agreement is not None
    assert transcript is not None
    members = Opener(made.agreement).openers(2)
    watch = Watch(transcript, START, [Observer("coalition", members)])
    for round in (1, 2):
        records = [one for one in transcript.records if one.message.header.round == round]
        (sight,) = watch.follow(round, records)
        client = min(set(range(CLIENTS)) - members)
        pieces = sight.pieces(client, published=True)
        assert pieces is not None
        assert len(pieces.sent) == N
        assert sight.seen(client)[0, -1], "the gauge is the last piece of the shard that they own"
        assert sight.published.all()


@pytest.mark.parametrize("protects", ["sample", "client"])
@pytest.mark.parametrize("ring_bytes", [4, 5, 6, 8])
def test_openers_read_what_the_client_masked(
    ring_bytes: int, protects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By weight, with the grid that noise takes: off by a factor, an audit of openers is void."""
    drawn: list[NDArray[np.int64]] = []
    words = SharedNoising.words

    def noted(self: SharedNoising, content: Any, round: int) -> NDArray[np.int64]:
        drawn.append(words(self, content, round))
        return drawn[-1]

    monkeypatch.setattr(SharedNoising, "words", noted)
    trainers = [Fixed(number, samples=SAMPLES - number % 2) for number in range(CLIENTS)]
    small = FixedPoint(value_range=0.25)  # so that four bytes leave values places enough
    made = federation(trainers=trainers, precision=small, protects=protects, ring_bytes=ring_bytes)
    transcript = made.fit(1, progress=False, record=True).transcript
    assert transcript is not None
    assert made.agreement is not None
    noise, opener = made.agreement.settings.noise, Opener(made.agreement)
    assert noise is not None
    places = noise.grid(ring_bytes, small.fraction_bits).places
    read: dict[int, dict[Key, Vector]] = defaultdict(dict)
    for record in transcript.records:
        message = record.message
        if isinstance(message, Contribution) and record.receivers != (record.sender,):
            client, key = message.header.sender, message.header.key
            opened = opener.read(message, opener.openers(key[0]))
            assert opened is not None
            read[client][key], samples, steps = opened
            assert (samples, steps) == (SAMPLES - client % 2, 1)
    assert read.keys() == set(range(CLIENTS))
    for client, pieces in read.items():
        samples = SAMPLES - client % 2
        weight = samples if protects == "sample" else samples / SAMPLES
        layout, edges = made.agreement.coding.layout(1, client)
        assert len(layout) == len(drawn[client]) == N
        for number, key in enumerate(made.agreement.keys):
            # An owner's own never travels, and the gauge has no place in the model.
            if key in pieces and key != made.agreement.gauge:
                masked = drawn[client][edges[number] : edges[number + 1]]
                expected = (masked / 2.0**places / weight).astype(np.float32)
                assert_same_bits(pieces[key], expected)


def test_stations_and_a_state_that_goes_on_draw_the_same() -> None:
    made = federation()
    whole = made.fit(2, progress=False).model
    agreement = made.agreement
    assert agreement is not None

    def at(count: int) -> Stations:
        return Stations([
            Cohort(agreement, START, Trainers(TRAINERS), place=Place(number, count))
            for number in range(count)
        ])  # fmt: skip

    first, later = at(2), at(1)
    first.run_round(1)
    later.restore(1, first.state())
    later.run_round(2)
    assert_same_bits(later.models()[0], whole)


def test_both_figures_are_said() -> None:
    made = federation(epsilon=2.0)
    budget = made.start(160).privacy
    assert budget is not None
    assert budget.openers is not None
    assert budget.epsilon <= 2.0 < 5 < budget.openers
    assert made.agreement is not None
    assert made.agreement.settings.min_included == 9, "nine of ten are counted on"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"secure": "2of3", "epsilon": 8, "calibration": "per-round"},
            "is 'per-round'",
        ),
        ({"epsilon": 8, "protects": "client"}, "protects is 'client'"),
        ({"secure": "2of3", "epsilon": 8, "kept_fraction": 0.3}, "shift is True; expected False"),
    ],
)
def test_what_cannot_be_promised_is_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidSetting, match=match):
        Federation(Trainers(TRAINERS), START, create("eris", **settings)).start(3)
