"""GGL: with a prior, few coordinates are enough; what a defence does must be done to trials too.

The figures in full: ``python -m eris.experiments.audits.inversions --only ggl``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion import Ggl, Inverted, SearchBudget, invert
from eris.audit.inversion.generator import PrincipalComponents
from eris.audit.inversion.judging import RECONSTRUCTED
from eris.audit.inversion.modelled import DEFENCES
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.data import load_mnist

LATENTS = 12


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.Sigmoid(), nn.Flatten(), nn.Linear(1568, 10))


@pytest.fixture(scope="module")
def prior() -> PrincipalComponents:
    images = load_mnist().test_images[:1000, ::2, ::2].astype(np.float32) / 255
    return PrincipalComponents.of(torch.from_numpy(images)[:, None], LATENTS)


@pytest.fixture(scope="module")
def inside(prior: PrincipalComponents) -> Tensor:
    """Two training digits, as near as the prior has them."""
    images = load_mnist().train_images[:2, ::2, ::2].astype(np.float32) / 255
    return prior(prior.project(torch.from_numpy(images)[:, None]))


def gradients(model: nn.Module, images: Tensor) -> Tensor:
    rows = []
    for image, label in zip(images, load_mnist().train_labels[:2], strict=False):
        loss = functional.cross_entropy(model(image[None]), torch.tensor([int(label)]))
        pieces = torch.autograd.grad(loss, list(model.parameters()))
        rows.append(torch.cat([piece.flatten() for piece in pieces]))
    return torch.stack(rows)


def attacked(update: Tensor, attack: Ggl, **options: Any) -> Inverted:
    given = {"shape": (1, 14, 14), "budget": SearchBudget(150), **options}
    by_client = dict(enumerate(update))
    return invert(network(), functional.cross_entropy, by_client, attack=attack, **given)


def worst(found: Tensor, images: Tensor) -> float:
    return float((found[:, 0] - images).square().mean(dim=(1, 2, 3)).max())


@pytest.mark.parametrize("share", [1.0, 0.05])
def test_what_the_prior_has_is_found(
    share: float, prior: PrincipalComponents, inside: Tensor
) -> None:
    update = gradients(network(), inside)
    seen = torch.from_numpy(Stream(0, "test").uniform(0, update.numel()) < share)
    mask = dict(enumerate(seen.reshape(update.shape)))
    found = attacked(update, Ggl(prior, divergence=0.0), mask=mask)
    assert worst(found.inputs, inside) < RECONSTRUCTED
    assert worst(found.control, inside) > 0.02


def test_taking_the_unseen_for_zeros_finds_less(prior: PrincipalComponents, inside: Tensor) -> None:
    update = gradients(network(), inside)
    seen = torch.from_numpy(Stream(0, "test").uniform(0, update.numel()) < 0.05)
    mask = dict(enumerate(seen.reshape(update.shape)))
    found = attacked(update, Ggl(prior), mask=mask, mode="oblivious", budget=SearchBudget(100))
    assert worst(found.inputs, inside) > 0.005


def test_evolution_comes_closer_than_to_random_numbers_and_again_the_same(
    prior: PrincipalComponents, inside: Tensor
) -> None:
    update = gradients(network(), inside)
    attack = Ggl(prior, by="cma-es")
    state = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    found = attacked(update, attack, budget=SearchBudget(150))
    assert worst(found.inputs, inside) < 0.1 * worst(found.control, inside)
    again = attacked(update, attack, budget=SearchBudget(150))
    assert torch.equal(found.inputs, again.inputs)
    # Neither reads nor moves numpy's process-wide generator.
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index]  # noqa: NPY002


def clip(update: Tensor) -> Tensor:
    return update / update.square().sum(1, keepdim=True).sqrt() / 10


def sparse(update: Tensor) -> Tensor:
    least = update.abs().quantile(0.9, dim=1, keepdim=True)
    return torch.where(update.abs() >= least, update, 0)


def noise(update: Tensor) -> Tensor:
    drawn = Stream(1, "test").normal(0, update.numel()).astype(np.float32)
    return clip(update) + 3e-4 * torch.from_numpy(drawn).reshape(update.shape)


@pytest.mark.parametrize(
    ("defence", "applied", "within"),
    [("clipped", clip, 1e-4), ("noisy", noise, 2e-3), ("pruned", sparse, 1e-4),
     ("top-k", sparse, 1e-4)],
)  # fmt: skip
def test_who_models_the_defence_finds_what_others_do_not(
    defence: str, applied: Any, within: float, prior: PrincipalComponents, inside: Tensor
) -> None:
    update = applied(gradients(network(), inside))
    naive = attacked(update, Ggl(prior, divergence=0.0), budget=SearchBudget(100))
    found = attacked(update, Ggl(prior, divergence=0.0, defence=defence), budget=SearchBudget(150))
    assert worst(found.inputs, inside) < within
    assert worst(naive.inputs, inside) > 10 * worst(found.inputs, inside)


def test_every_defence_leaves_what_it_cannot_have_changed() -> None:
    """A gradient that is its own observation is at no distance from it."""
    drawn = torch.from_numpy(Stream(2, "test").normal(0, 60).astype(np.float32)).reshape(2, 30)
    observed = torch.where(drawn.abs() > 0.5, drawn, 0)
    for name, modelled in DEFENCES.items():
        if name != "noisy":  # takes some of what it sees for noise
            torch.testing.assert_close(modelled(observed, observed, torch.ones(2, 30)), observed)


def test_what_does_not_fit_is_refused(prior: PrincipalComponents) -> None:
    update = torch.ones(1, 15770)
    small = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(InvalidSetting, match=r"shape of the generator's pictures is \(1, 14, 14\)"):
        invert(small, functional.cross_entropy, torch.ones(10), shape=(1, 2, 2), attack=Ggl(prior))
    wide = PrincipalComponents(torch.zeros(196), torch.zeros(200, 196), (1, 14, 14))
    with pytest.raises(InvalidSetting, match="latents of the generator is 200; expected from 1"):
        attacked(update, Ggl(wide))
    with pytest.raises(InvalidSetting, match="prior of ggl is None; expected a generator: `eris"):
        attacked(update, Ggl())
    with pytest.raises(InvalidSetting, match=r"defence is 'cliped'.*did you mean 'clipped'"):
        Ggl(prior, defence="cliped")
    with pytest.raises(InvalidSetting, match="by is 'sgd'; expected one of adam, cma-es"):
        Ggl(prior, by="sgd")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="step is 0; expected a number above 0"):
        Ggl(prior, step=0)
