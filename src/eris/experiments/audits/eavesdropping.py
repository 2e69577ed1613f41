"""The experiments of the FLIP paper: what a tap on the first client's uplink makes of its model.

Colour LeNet-5 on CIFAR-10, 8 clients, 30 rounds, four settings; the first client is in the last
five rounds, over which all accuracies are means. Every setting is trained twice, plainly and with
NbAFL's noise (:mod:`tap_training`); the tap's estimates are all made from the recorded course of
the first: by increments (FLIP) from several starts and for many interceptions, and if models
travelled (FLOP). Then images are made by DLG, and the tap's model is asked about them
(:mod:`tap_images`).

The paper says gradient descent with a step of 1e-3. Clients step by Adam here unless ``--optimiser
sgd`` is asked for; docs/eavesdropper.md says why.

``python -m eris.experiments.audits.eavesdropping --seed 0 --quick`` prints tables; courses and
figures of every setting are kept in ``runs/audits``, and what is there is not made again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from eris.audit.eavesdropper import CARRY
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits import tap_images
from eris.experiments.audits.report import write
from eris.experiments.audits.tables import FOLDER
from eris.experiments.audits.tap_report import curves, tables
from eris.experiments.audits.tap_training import (
    FULL,
    LAST,
    QUICK,
    SETTINGS,
    TAPPED,
    Setting,
    Taped,
    TapExperiment,
    kept_course,
)
from eris.experiments.figures import parts, say, widened
from eris.experiments.runs.assembly import Assembly, assemble
from eris.experiments.runs.checkpoint import RunDamaged
from eris.experiments.runs.progress import bar
from eris.experiments.runs.store import runs_root
from eris.protocol.gossip.peer import Sends
from eris.theory.eavesdropper import (
    Course,
    Estimator,
    Tap,
    best_sampling,
    errors,
    perfect_interception,
    protection,
)
from eris.training.evaluation import evaluate
from eris.training.torch import single_threaded

NAME = "eavesdropper"
PATTERNS = 16
"""Interceptions that are drawn at γ, for the spread of accuracies after the last round."""
INTERCEPTIONS = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Over which protection is averaged exactly."""
SCALES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""By which a tap that has test images may shorten the sum of what it heard."""
AT_ONCE = 256
"""Test images in a pass: what fits the cache is fastest."""

# -- what the tap makes of a course -----------------------------------------------------------


def follow(
    course: Taped,
    start: Vector,
    rounds: Sequence[int],
    heard: Sequence[bool] | NDArray[np.bool_],
    sends: Sends = "increments",
) -> list[Vector]:
    """The estimate after each of the rounds, in all of which the client is sampled."""
    one, found = Estimator(start, CARRY), []
    told = course.client if sends == "models" else course.increments
    for t, intercepted in zip(rounds, heard, strict=True):
        if intercepted:
            one.hear(told[t], sends=sends)
        else:
            one.miss()
        found.append(one.model.astype(np.float32))
    return found


@dataclass(frozen=True, eq=False)
class Estimates:
    """The client's models and the tap's, after each round that the client is sampled in."""

    rounds: list[int]
    heard: NDArray[np.bool_]
    """By round, and by interception that was drawn; the taps by name have the first of them."""
    client: list[Vector]
    by_name: dict[str, list[Vector]]
    last: dict[str, list[Vector]]
    """After the last round, for every interception that was drawn."""


def estimates(settings: TapExperiment, course: Taped) -> Estimates:
    """Every tap beside the client: starts, the paper's γ and 1, and where models travel."""
    rounds = [t for t, there in enumerate(course.sampled) if there]
    draws = [Stream(settings.seed, "eavesdrop", t + 1, TAPPED).uniform(0, PATTERNS) for t in rounds]
    heard = np.array(draws) < settings.interception
    zero, first, trained = np.zeros_like(course.initial), course.initial, course.client[rounds[0]]
    mine, all_heard = heard[:, 0], np.ones(len(rounds), np.bool_)
    return Estimates(
        rounds,
        heard,
        [course.client[t] for t in rounds],
        {
            "zero": follow(course, zero, rounds, mine),
            "first": follow(course, first, rounds, mine),
            # The paper's x^c_{t_0}, if it is meant as it is after the client's first training.
            "trained": [trained, *follow(course, trained, rounds[1:], mine[1:])],
            "zero, all heard": follow(course, zero, rounds, all_heard),
            "first, all heard": follow(course, first, rounds, all_heard),
            "trained, all heard": [trained, *follow(course, trained, rounds[1:], all_heard[1:])],
            "models": follow(course, zero, rounds, mine, "models"),
        },
        {
            name: [follow(course, start, rounds, each)[-1] for each in heard.T]
            for name, start in (("zero", zero), ("first", first))
        },
    )


def scaled(course: Taped, heard: Sequence[int]) -> list[Vector]:
    """x_0 and the increments of these rounds, together and shortened: a tap that adds them up goes
    too far, since in the server's means most of what is one client's own cancels."""
    total = course.increments[list(heard)].sum(axis=0, dtype=np.float64)
    return [(course.initial + scale * total).astype(np.float32) for scale in SCALES]


def protections(settings: TapExperiment, setting: Setting, course: Taped) -> dict[str, Any]:
    """‖x^c − x^a‖² after the last round: of a tap that starts at zero and hears all, beside (18);
    and exactly, over all interceptions of this client's rounds, by γ."""
    start = course.initial.astype(np.float64)
    server, increments = (one.astype(np.float64) for one in (course.server, course.increments))
    given = Course(server, increments, start, 0 * start)
    signals, heard = given.signals(course.sampled), [True] * len(course.sampled)
    there, last = np.array(course.sampled), course.client[-1].astype(np.float64)
    moved = last - start

    def by_interception(adversary: Vector, sends: Sends) -> list[float]:
        some = Course(server[there], increments[there], start, adversary.astype(np.float64))
        taps = (Tap(1.0, gamma, CARRY) for gamma in INTERCEPTIONS)
        return [float(protection(some, tap, sends)[-1]) for tap in taps]

    zero = np.zeros_like(course.initial)
    return {
        "measured": float(errors(given, course.sampled, heard, CARRY)[-1]),
        "of (18)": perfect_interception(signals, setting.sampled / settings.clients),
        "best p": best_sampling(signals),
        "norm": float(last @ last),
        "moved": float(moved @ moved),
        "γ": list(INTERCEPTIONS),
        "increments, from zero": by_interception(zero, "increments"),
        "increments, from first": by_interception(course.initial, "increments"),
        "models, from zero": by_interception(zero, "models"),
    }


# -- rows -------------------------------------------------------------------------------------


class Tester:
    """Accuracy on the test images, of which a model is asked once."""

    def __init__(self, assembly: Assembly) -> None:
        data, self._module = assembly.samples, assembly.module
        self._tests = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_targets)
        self._known: dict[bytes, float] = {}

    def __call__(self, models: Sequence[Vector]) -> list[float]:
        """Of each model."""
        found = []
        for one in models:
            key = one.tobytes()
            if key not in self._known:
                tested = evaluate(self._module, one, *self._tests, batch_size=AT_ONCE)
                self._known[key] = tested["accuracy"]
            found.append(self._known[key])
        return found


def row(
    settings: TapExperiment, setting: Setting, folder: Path, advance: Callable[[], None]
) -> dict[str, Any]:
    """All figures of one setting, with a picture of the images in ``folder``."""
    assembly = assemble(settings.recipe(setting))
    plain = kept_course(settings, setting, assembly, False, folder, advance)
    noisy = kept_course(settings, setting, assembly, True, folder, advance)
    with single_threaded():
        accuracy, found = Tester(assembly), estimates(settings, plain)
        client, taps = accuracy(found.client), {k: accuracy(m) for k, m in found.by_name.items()}
        sampled = [t for t, there in enumerate(noisy.sampled) if there]
        some = [t for t, there in zip(found.rounds, found.heard[:, 0], strict=True) if there]
        shortened = {"first": some, "first, all heard": found.rounds}
        under_noise = accuracy([noisy.client[t] for t in sampled])
        images = _images(settings, setting, assembly, (found, plain, noisy), folder)
        return {
            "setting": setting.label,
            "rounds": [t + 1 for t in found.rounds],
            "heard": found.heard[:, 0].tolist(),
            "client": _end(client),
            "taps": {name: _end(each) for name, each in taps.items()},
            "client by round": client,
            "taps by round": taps,
            "interceptions": {name: accuracy(models) for name, models in found.last.items()},
            "scales": {"by": SCALES}
            | {k: accuracy(scaled(plain, v)) for k, v in shortened.items()},
            "protection": protections(settings, setting, plain),
            "client, NbAFL": _end(under_noise),
            "client by round, NbAFL": under_noise,
            "sigma": settings.sigma,
            "images": images,
        }


def _end(accuracies: Sequence[float]) -> float:
    return float(np.mean(accuracies[-LAST:]))


def _images(
    settings: TapExperiment,
    setting: Setting,
    assembly: Assembly,
    heard: tuple[Estimates, Taped, Taped],
    folder: Path,
) -> dict[str, Any]:
    found, plain, noisy = heard
    attackers = tap_images.attackers(found.by_name["first"][-2], plain, noisy)
    made = [tap_images.rebuilt(one, assembly, setting, settings) for one in attackers]
    client = tap_images.TappedImages.of(assembly)
    alone = tap_images.singles(plain.client[-2], client, assembly, settings)
    path = folder / f"{stem(settings, setting)}.png"
    tap_images.picture(made, alone, client, path)
    return tap_images.figures(made, alone, client, assembly) | {"picture": path.name}


def stem(settings: TapExperiment, setting: Setting) -> str:
    """How the files of a setting are called."""
    size = f"{settings.samples}-{settings.optimiser}-{settings.seed}"
    return f"{NAME}-{setting.letter}-{size}"


def rows(
    settings: TapExperiment,
    root: Path,
    advance: Callable[[], None] = lambda: None,
    only: Sequence[Setting] = SETTINGS,
) -> Iterator[dict[str, Any]]:
    """Every setting: from its file if it is there, or made and kept."""
    for setting in only:
        folder = root / FOLDER
        path = folder / f"{stem(settings, setting)}.json"
        if not path.is_file():
            found = row(settings, setting, folder, advance)
            write({"run": path.stem, "about": asdict(settings), **found}, path)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["about"] != asdict(settings):
                raise ValueError("it is of other settings")
        except (ValueError, KeyError, TypeError) as broken:
            remedy = "remove it, and the same command makes it again"
            raise RunDamaged(path, f"is damaged ({broken})", remedy) from broken
        yield kept


def main(arguments: list[str] | None = None) -> int:
    """Make what is not there yet, and print it."""
    parser = argparse.ArgumentParser(
        prog="python -m eris.experiments.audits.eavesdropping", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=FULL, help="a client's")
    parser.add_argument("--optimiser", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--only", default="abcd", help="letters of the paper's settings")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} samples a client")
    parser.add_argument("--runs", type=Path, default=None)
    given = parser.parse_args(arguments)
    settings = TapExperiment(samples=given.samples, optimiser=given.optimiser, seed=given.seed)
    if given.quick:
        settings = replace(settings, samples=QUICK, test_samples=1000, images=32)
    chosen, root = _chosen(given.only), runs_root(given.runs)
    with bar(Console(stderr=True)) as shown:
        task = shown.add_task(NAME, total=2 * settings.rounds * len(chosen))
        found = list(rows(settings, root, lambda: shown.advance(task), chosen))
    wide = widened(Console(highlight=False), 150)
    for table in tables(found):
        wide.print(*parts(table, wide))
    say(_about(settings))
    drawn = root / f"{NAME}-{settings.samples}-{settings.optimiser}-{settings.seed}.png"
    pictures = [curves(found, drawn), *(root / FOLDER / one["images"]["picture"] for one in found)]
    say(f"Pictures: {', '.join(map(str, pictures))}")
    return 0


def _chosen(letters: str) -> list[Setting]:
    known: Mapping[str, Setting] = {one.letter: one for one in SETTINGS}
    if not letters or not {*letters} <= known.keys():
        raise InvalidSetting("--only", letters, f"letters of {', '.join(known)}")
    return [one for letter, one in known.items() if letter in letters]


def _about(settings: TapExperiment) -> str:
    whole = settings.samples == FULL
    size = "all 50,000 images" if whole else f"{settings.samples} of the paper's {FULL} samples"
    return (
        f"CIFAR-10 ({size} a client), LeNet-5 (colour, 62,006 parameters), "
        f"{settings.clients} clients, {settings.rounds} rounds, {settings.optimiser} "
        f"{settings.learning_rate:g}, γ = {settings.interception}, m = {CARRY}; accuracies are "
        f"means over the last {LAST} rounds on {settings.test_samples:,} test images; NbAFL "
        f"σ = {settings.sigma:.4f}; {settings.images} images by {settings.iterations} iterations "
        f"of DLG; seed {settings.seed}."
    )


if __name__ == "__main__":
    raise SystemExit(main())
