"""ROG's enhancement network: what an enlarged, noisy picture of some kind looked like before.

What ROG finds is the true picture with fewer pixels and an error that is nearly white, the larger
the fewer coordinates were seen. So the network is trained on pictures of the attacker's own that
are made smaller, given white noise of any strength up to a most, and enlarged: the attacked model
has no part in it. The loss is L1 + LPIPS, for ROG is judged by LPIPS; what is owed to the network
alone shows in the control.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.inversion.rog import Rog, enlarged
from eris.audit.inversion.search import Tell
from eris.audit.inversion.trained import PriorRecipe, TrainedPrior, split
from eris.audit.similarity import Lpips
from eris.core.streams import Stream
from eris.models.seeding import seeded


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.second(self.first(x).relu())
        return found


class EnhancementNetwork(nn.Module):
    """A small residual U-Net: blocks at half and at a quarter of the pixels each way.

    >>> EnhancementNetwork(1, 8, 16, 1)(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 1, 28, 28])
    """

    def __init__(self, colours: int, channels: int, deep: int, blocks: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4 * colours, channels, 3, padding=1)
        self.before = nn.Sequential(*(_Residual(channels) for _ in range(blocks)))
        self.down = nn.Conv2d(channels, deep, 4, 2, padding=1)
        self.within = nn.Sequential(*(_Residual(deep) for _ in range(blocks)))
        self.up = nn.Conv2d(deep, 4 * channels, 1)
        self.after = nn.Sequential(*(_Residual(channels) for _ in range(blocks)))
        self.leave = nn.Conv2d(channels, 4 * colours, 3, padding=1)

    def forward(self, pictures: Tensor) -> Tensor:
        """What is to be added to a picture, and the picture."""
        height, width = pictures.shape[2:]
        # Halved twice; what is added at the edges is cut off again.
        x = functional.pad(pictures, (0, -width % 4, 0, -height % 4), mode="replicate")
        fine = self.before(self.enter(functional.pixel_unshuffle(x, 2)))
        coarse = self.up(self.within(self.down(fine)))
        fine = self.after(fine + functional.pixel_shuffle(coarse, 2))
        found = x + functional.pixel_shuffle(self.leave(fine), 2)
        return found[..., :height, :width]


def _recipe(data: str, colours: int, epochs: int) -> PriorRecipe:
    numbers = {"colours": colours, "channels": 32, "deep": 64, "blocks": 2, "factor": 2,
               "noise": 0.5}  # fmt: skip
    return PriorRecipe("rog", data, "test", numbers, epochs, 32, 1e-3)


RECIPES: Mapping[str, PriorRecipe] = {
    recipe.data: recipe
    for recipe in (_recipe("mnist", 1, 3), _recipe("cifar10", 3, 6), _recipe("faces", 1, 150))
}
"""By data set; faces are few."""


def train(recipe: PriorRecipe, images: Tensor, lpips: Lpips, tell: Tell) -> TrainedPrior:
    """Train a network on all images but the last tenth, by which it is judged."""
    trained_on, judged_by = split(images)
    model = _built(recipe)
    batches = -(-len(trained_on) // recipe.batch)
    steps = recipe.epochs * batches
    adam = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    decay = torch.optim.lr_scheduler.OneCycleLR(adam, recipe.learning_rate, total_steps=steps)
    for epoch in range(recipe.epochs):
        order = Stream(recipe.seed, "enhancement order", round=epoch).permutations(
            1, len(trained_on)
        )[0]
        for number, chosen in enumerate(torch.split(torch.from_numpy(order), recipe.batch)):
            step = epoch * batches + number
            stream = Stream(recipe.seed, "enhancement", round=step)
            original = trained_on[chosen]
            original = original.flip(-1) if step % 2 and original.shape[1] == 3 else original
            found = model(degraded(original, recipe, stream))
            loss = functional.l1_loss(found, original) + lpips.distance(original, found).mean()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            decay.step()
            tell((step + 1) / steps)
    return TrainedPrior(model.state_dict(), judged(model, recipe, judged_by, lpips))


@torch.no_grad()
def judged(model: nn.Module, recipe: PriorRecipe, images: Tensor, lpips: Lpips) -> dict[str, float]:
    """Errors on images that were not trained on, of what comes in and of what goes out."""
    given = degraded(images, recipe, Stream(recipe.seed, "enhancement judged"))
    made = torch.cat([model(part).clamp(0, 1) for part in torch.split(given, 256)])
    return {
        "held-out images": len(images),
        "LPIPS before enhancement": float(lpips.distance(images, given).mean()),
        "LPIPS": float(lpips.distance(images, made).mean()),
        "MSE before enhancement": float((given - images).square().mean()),
        "MSE": float((made - images).square().mean()),
    }


def degraded(images: Tensor, recipe: PriorRecipe, stream: Stream) -> Tensor:
    """Images as ROG finds them: smaller, noisy (each by a strength of its own), and enlarged."""
    height, width = images.shape[2:]
    factor = int(recipe.architecture["factor"])
    small = functional.interpolate(images, (-(-height // factor), -(-width // factor)), mode="area")
    drawn = stream.normal(0, small.numel()).astype(np.float32).reshape(small.shape)
    # Behind the normal numbers of the stream, so that none is used twice.
    strength = recipe.architecture["noise"] * stream.uniform(small.numel(), len(images))
    noise = torch.from_numpy(drawn) * torch.from_numpy(strength).float().view(-1, 1, 1, 1)
    return enlarged((small + noise).clamp(0, 1), height, width).clamp(0, 1)


def armed(recipe: PriorRecipe, trained: TrainedPrior) -> Rog:
    """The attack with a trained network."""
    model = _built(recipe)
    model.load_state_dict(dict(trained.tensors))
    return Rog(model.eval().requires_grad_(False), int(recipe.architecture["factor"]))


def _built(recipe: PriorRecipe) -> EnhancementNetwork:
    numbers = {name: int(recipe.architecture[name])
               for name in ("colours", "channels", "deep", "blocks")}  # fmt: skip
    return seeded(lambda: EnhancementNetwork(**numbers), recipe.seed)
