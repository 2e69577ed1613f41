"""Scores against slow oracles, on what was really sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from eris.audit import kernels
from eris.audit.alignment import ALIGNED, COSINE, NORMALISED, PAPER, Aligner
from eris.audit.gradients import SampleModel
from eris.audit.joint import RIDGE, JointRegression
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits.auditing import by_round
from eris.protocol.observers import Observer
from eris.protocol.secure.simulated import Opener
from support.audits import recorded, subject, watch


def plain_gradient(samples: SampleModel, model: Vector, place: int) -> Vector:
    """One sample's gradient, one backward pass."""
    samples.flat.write(torch.tensor(model))
    module = samples.flat.module
    loss = samples.loss(
        module(samples.inputs[place : place + 1]), samples.targets[place : place + 1]
    )
    pieces = torch.autograd.grad(loss, samples.flat.parameters)
    return np.concatenate([piece.numpy().ravel() for piece in pieces])


@pytest.mark.parametrize("method", ["eris", "dsc", "paper mode"])
def test_scores_are_inner_products_on_what_an_observer_sees(method: str) -> None:
    found, transcript = subject(method)
    samples, candidates = found.samples, found.candidates
    observers = [
        Observer("aggregator", frozenset({2})),
        Observer("coalition", frozenset({0, 3})),
        Observer("member", frozenset({8})),
    ]
    looking = watch(method, observers)
    for round, records in sorted(by_round(transcript).items()):
        for sight in looking.follow(round, records):
            aligner = Aligner(candidates, sight)
            for place, gradient in samples.gradients(sight.model):
                aligner.add(place, gradient)
            scored = aligner.finish()
            for place in range(0, len(candidates), 7):
                client = int(candidates.client[place])
                pieces = sight.pieces(client, published=True)
                assert pieces is not None
                assert pieces.published is not None
                gradient = plain_gradient(samples, sight.model, place)
                for row in range(3):
                    seen = np.repeat(sight.seen(client)[row], pieces.sizes)
                    mine = np.ones_like(seen) if row == 2 else seen
                    update = pieces.published if row == 2 else pieces.update
                    sent = pieces.published if row == 2 else pieces.sent
                    there = gradient[pieces.coordinates][mine]
                    product = float(there @ update[mine])
                    length = float(np.linalg.norm(there))
                    expected = {
                        PAPER: float(there @ sent[mine]),
                        ALIGNED: product,
                        NORMALISED: product / length,
                        COSINE: product / length / float(np.linalg.norm(update[mine])),
                    }
                    for name, value in expected.items():
                        np.testing.assert_allclose(
                            scored.scores[name][row, place], value, rtol=2e-4, atol=1e-7
                        )
            share = 0.3 if method != "eris" else 1.0
            assert (scored.visible[2] == 0).all()
            assert 0.5 * share * 650 / 4 < scored.visible[0].mean() < 2 * share * 650 / 4
            assert scored.visible[1].mean() > 1.3 * scored.visible[0].mean()


def test_the_kernel_adds_up_pieces_like_a_loop() -> None:
    draw = Stream(4, "pieces")
    gradient = draw.normal(0, 50).astype(np.float32)
    coordinates = draw.permutations(1, 50)[0][:30]
    edges = np.array([0, 10, 10, 30])
    values = draw.normal(100, 60).astype(np.float32).reshape(2, 30)
    products, squares = np.zeros((2, 3)), np.zeros(3)
    kernels.piece_products(products, squares, gradient, coordinates, edges, values)
    for piece in range(3):
        at = slice(edges[piece], edges[piece + 1])
        there = gradient[coordinates[at]].astype(float)
        np.testing.assert_allclose(squares[piece], (there**2).sum(), rtol=1e-5)
        np.testing.assert_allclose(products[:, piece], values[:, at] @ there, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["eris", "dsc", "paper mode"])
def test_the_regression_is_ridge_regression_over_all_rounds(method: str) -> None:
    found, transcript = subject(method)
    samples, candidates = found.samples, found.candidates
    looking = watch(method, [Observer("aggregator", frozenset({1}))])
    regression = JointRegression(candidates, seed=0)
    rows: dict[int, list[np.ndarray]] = {client: [] for client in candidates.clients}
    right: dict[int, list[np.ndarray]] = {client: [] for client in candidates.clients}
    for round, records in sorted(by_round(transcript).items()):
        for sight in looking.follow(round, records):
            gradients = np.stack([g for _, g in samples.gradients(sight.model)]).astype(float)
            regression.begin(sight, 0)
            for place, gradient in samples.gradients(sight.model):
                regression.add(place, gradient)
            regression.finish()
            for client in candidates.clients:
                pieces = sight.pieces(client)
                assert pieces is not None
                seen = np.repeat(sight.seen(client)[0], pieces.sizes)
                rows[client].append(gradients[:, pieces.coordinates[seen]])
                right[client].append(pieces.update[seen].astype(float))
    scores = regression.scores()
    for client in candidates.clients:
        design = np.concatenate(rows[client], axis=1).T
        gram = design.T @ design
        ridge = RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
        weights = np.linalg.solve(gram + ridge, design.T @ np.concatenate(right[client]))
        mine = candidates.of(client)
        np.testing.assert_allclose(scores[mine], weights[mine], rtol=2e-2, atol=2e-4)


@pytest.mark.parametrize("opened", [False, True])
def test_under_noise_the_regression_goes_by_what_was_agreed(opened: bool) -> None:
    """Clipped candidates, all coordinates of all rounds, and a ridge that fits the noise."""
    found, transcript = subject("noise")
    samples, candidates = found.samples, found.candidates
    members = frozenset({8})
    if opened:
        members = Opener(watch("noise", [Observer("member", members)]).agreement).openers(0)
    looking = watch("noise", [Observer("openers" if opened else "member", members)])
    noise = looking.agreement.settings.noise
    assert noise is not None
    regression = JointRegression(candidates, seed=0)
    gram, right = 0.0, 0.0
    client = next(c for c in candidates.clients if c not in members)
    for round, records in sorted(by_round(transcript).items()):
        for sight in looking.follow(round, records):
            gradients = np.stack([g for _, g in samples.gradients(sight.model)]).astype(float)
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            gradients *= np.minimum(1, 0.5 / norms)
            regression.begin(sight, 0)
            for place, gradient in samples.gradients(sight.model):
                regression.add(place, gradient)
            regression.finish()
            pieces = sight.pieces(client, published=not opened)
            assert pieces is not None
            seen = np.repeat(sight.seen(client)[0] if opened else sight.published, pieces.sizes)
            assert 0 < seen.sum() <= 650
            values = pieces.update if opened else pieces.published
            assert values is not None
            design = gradients[:, pieces.coordinates[seen]]
            gram, right = gram + design @ design.T, right + design @ values[seen].astype(float)
    ridge = 4 * noise.std**2 * (1 if opened else 10)
    weights = np.linalg.solve(gram + ridge * np.eye(len(candidates)), right)
    mine = candidates.of(client)
    np.testing.assert_allclose(regression.scores()[mine], weights[mine], rtol=1e-2, atol=1e-6)
    assert not regression.full


def test_single_gradients_come_one_by_one_where_a_model_mixes_its_batch() -> None:
    class Mixing(torch.nn.Module):
        """Each output depends on the whole batch: only one sample at a time is its own."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(batch) + batch.mean()
            return out

    inputs = torch.tensor(Stream(1, "mix").normal(0, 18).reshape(6, 3).astype(np.float32))
    targets = torch.tensor([0, 1, 0, 1, 0, 1])
    samples = SampleModel(Mixing(), torch.nn.functional.cross_entropy, inputs, targets)
    model = samples.flat.read().numpy()
    for place, gradient in samples.gradients(model):
        np.testing.assert_allclose(gradient, plain_gradient(samples, model, place), atol=1e-6)


def test_losses_are_those_of_single_samples() -> None:
    assembly, _ = recorded("eris")
    found, _ = subject("eris")
    samples = found.samples
    losses = samples.losses(assembly.initial, np.array([5, 0, 3]))
    samples.flat.write(torch.tensor(assembly.initial))
    for value, place in zip(losses, (5, 0, 3), strict=True):
        with torch.no_grad():
            out = samples.flat.module(samples.inputs[place : place + 1])
            expected = torch.nn.functional.cross_entropy(out, samples.targets[place : place + 1])
        assert value == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    "convolution",
    [
        torch.nn.Conv2d(2, 3, 3, padding=1),
        torch.nn.Conv2d(2, 4, 3, stride=2, dilation=2, bias=False),
        torch.nn.Conv2d(2, 4, 3, groups=2, padding=1),
    ],
    ids=["plain", "stride and dilation", "groups"],
)
def test_single_gradients_of_convolutions_come_from_one_product(convolution: nn.Conv2d) -> None:
    inputs = torch.tensor(
        Stream(2, "images").normal(0, 7 * 2 * 9 * 9).reshape(7, 2, 9, 9).astype(np.float32)
    )
    features = convolution(inputs).flatten(1).shape[1]
    module = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.Linear(features, 3))
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    samples = SampleModel(module, nn.functional.cross_entropy, inputs, targets)
    model = samples.flat.read().numpy()
    for place, gradient in samples.gradients(model):
        np.testing.assert_allclose(gradient, plain_gradient(samples, model, place), atol=1e-6)
