"""What a user brings to an audit: a recorded run or a node's transcript, and a model.

Whatever does not fit is refused here, before the audit begins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn import functional

from eris.audit.call import check_fit
from eris.audit.candidates import Candidates
from eris.audit.membership import judged_places
from eris.audit.statistics import FEWEST
from eris.core.errors import InvalidSetting, MalformedMessage
from eris.core.vectors import Vector
from eris.data.outputs import check_file, check_folder
from eris.experiments.audits.auditing import (
    Subject,
    agreed,
    by_round,
    needs_canaries,
    subject_of,
)
from eris.experiments.audits.candidate_files import IN_A_FILE, Asked
from eris.experiments.audits.observers import FINAL_MODEL, named, usual
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.runner import check_same_ground
from eris.experiments.runs.store import MODEL, RECIPE, RECORD, ROUNDS, TRANSCRIPT, Run, find
from eris.named import called, named_function
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.transcript import Transcript
from eris.runtimes.grpc.recorder import RECORDS
from eris.training.flat import flatten
from eris.training.gradients import Loss
from eris.training.options import RunningStatistics


@dataclass(frozen=True)
class Recording:
    """Where a transcript lies, and the run it is of; of a real node there is none."""

    path: Path
    run: Run | None

    @property
    def name(self) -> str:
        """For people."""
        return str(self.path) if self.run is None else self.run.name


def recording(given: str, root: Path, *, candidates: bool = False) -> Recording:
    """A run by its name or folder, a node by its folder, or a transcript's file.

    ``candidates`` says that a run needs no canaries of its own: a user brings samples, or the
    attacks are not about membership.
    """
    place = Path(given)
    if place.is_file():
        return _whole(Recording(place, Run(place.parent) if _is_run(place.parent) else None))
    if not _is_run(place) and not _is_run(root / given):
        for folder in (place, place / "state"):
            if (folder / TRANSCRIPT).is_file():
                return Recording(folder / TRANSCRIPT, None)
            if (folder / RECORDS).is_file():
                expected = (
                    f"one that has ended, with {TRANSCRIPT}; stop the node to get it (one that was "
                    "killed: start it again, then stop it)"
                )
                raise InvalidSetting("node", str(folder), expected)
        for settings in (place / "node.toml", place.parent / "node.toml"):
            if place.is_dir() and settings.is_file():
                expected = (
                    f"one that recorded: set `record = true` under [observe] in {settings} and "
                    "start the node; what passes from then on is kept"
                )
                raise InvalidSetting("node", given, expected)
    try:
        run = find(given, root)
    except InvalidSetting as unknown:
        expected = f"{unknown.expected}; or a node's folder, or a {TRANSCRIPT}"
        raise InvalidSetting("run", given, expected) from None
    found = _whole(Recording(run.path / TRANSCRIPT, run))
    if not found.path.is_file():
        if run.state == "running":
            raise InvalidSetting("run", run.name, f"one that has ended, with {TRANSCRIPT}; wait")
        unfinished = run.recipe.engine.record and not run.over
        again = run.resuming() if unfinished else recorded_again(run, candidates=candidates)
        raise InvalidSetting("run", run.name, f"one with {TRANSCRIPT}; get it by `{again}`")
    return found


def _is_run(folder: Path) -> bool:
    """Whether a folder is a run's; a node's has a ``run.json`` of its own kind."""
    return (folder / RECIPE).is_file() and (folder / RECORD).is_file()


def _whole(found: Recording) -> Recording:
    """Refuse a run whose files are not what it wrote."""
    if found.run is not None:
        found.run.check(ROUNDS, MODEL, TRANSCRIPT)
    return found


def recorded_again(run: Run, *, candidates: bool) -> str:
    """The command that runs a recipe once more so that it can be audited."""
    data = run.recipe.data
    # Clients that draw for themselves can have no canaries.
    fitting = candidates or data.canaries or data.partition == "drawn"
    return run.again("recorded", "--record", *(() if fitting else ("--canaries", "0.5")))


def load(path: Path) -> Transcript:
    """Read a transcript, and its settings and messages, so that damage is found at once."""
    transcript = Transcript.load(path)
    agreed(transcript.settings)
    try:
        by_round(transcript)
    except MalformedMessage as broken:
        raise MalformedMessage(f"{path}: {broken.field}", broken.reason) from broken
    return transcript


def check_outputs(figures: Path, pictures: Path) -> None:
    """Refuse places where the audit could not be written, and a file that is not an audit's."""
    check_file("--out", figures)
    check_folder("--pictures", pictures)
    if not figures.exists():
        return
    try:
        earlier = json.loads(figures.read_text(encoding="utf-8"))
        replaceable = not earlier or {"run", "about"} <= {*earlier}
    except (ValueError, TypeError):
        replaceable = figures.stat().st_size == 0
    if not replaceable:
        expected = "a new file, or the figures of an earlier audit: another is not written over"
        raise InvalidSetting("--out", str(figures), expected)


# -- whose view it is -------------------------------------------------------------------------


def whose(transcript: Transcript) -> int | None:
    """The member whose own view a transcript is; None if it is of a whole run.

    A node records what it sends and what reaches it; what reached others it does not know.
    """
    for member in range(len(transcript.membership.members)):
        if transcript.records and all(
            record.arrived <= {member} if record.sender == member else record.arrived == {member}
            for record in transcript.records
        ):
            return member
    return None


def observers_of(
    transcript: Transcript, asked: Sequence[str], seed: int = 0, attacks: Sequence[str] = ()
) -> tuple[str, ...]:
    """The observers to audit as; of one node's transcript only that node has left a trace.

    ``aggregator`` and ``member`` without a number are then the node itself.
    """
    me = whose(transcript)
    if me is None:
        for name in asked:
            _check_named(name, transcript, seed)
        return tuple(asked) or tuple(usual(transcript, attacks))
    own = _own_names(transcript, me)
    if not asked:
        return tuple(own.values())
    return tuple(_as_the_node(name, transcript, me, own, seed) for name in asked)


def _check_named(name: str, transcript: Transcript, seed: int) -> None:
    """Refuse an observer that does not exist, or that this kind of run has no place for."""
    found = named(name, transcript, seed)
    fitting = ("neighbour", "link")
    if not transcript.owners and any(observer.kind not in fitting for observer in found):
        expected = f"neighbour, neighbour:3, link:3-all or {FINAL_MODEL}: in this run nodes gossip"
        raise InvalidSetting("observer", name, expected)


def _own_names(transcript: Transcript, me: int) -> dict[str, str]:
    """How a node's own transcript can be looked at."""
    kinds = ["neighbour"] if not transcript.owners else ["member"]
    if me in transcript.owners:
        kinds.insert(0, "server" if len(transcript.owners) == 1 else "aggregator")
    names = {kind: kind if kind == "server" else f"{kind}:{me}" for kind in kinds}
    return {**names, FINAL_MODEL: FINAL_MODEL}


def _as_the_node(
    name: str, transcript: Transcript, me: int, own: Mapping[str, str], seed: int
) -> str:
    _check_named(name, transcript, seed)
    chosen = own.get(name, name)
    if name == "link":
        other = next((owner for owner in sorted(transcript.owners) if owner != me), me)
        chosen = f"link:{me}-{other}"
    for observer in named(chosen, transcript, seed):
        if me not in {*observer.members, *(observer.link or ())} or len(observer.members) > 1:
            who = f"{transcript.membership.members[me]}'s (member {me})"
            allowed = ", ".join(own.values())
            raise InvalidSetting(
                "observer", name, f"{allowed} or a link of member {me}: this transcript is {who} "
                "own view, and nobody else left a trace in it",
            )  # fmt: skip
    return chosen


def check_askable(
    names: Sequence[str], transcript: Transcript, candidates: Candidates, seed: int = 0
) -> None:
    """Refuse an observer who is asked about too few candidates or, if the truth is known, about
    one kind only."""
    told = bool(candidates.included.any())
    for observer in (one for name in names for one in named(name, transcript, seed)):
        truth = candidates.included[judged_places(observer, candidates)]
        if len(truth) < FEWEST or (told and (truth.all() or not truth.any())):
            found = f"{len(truth)}, {int(truth.sum())} of them trained on"
            expected = f"at least {FEWEST} that are not its own, some trained on and some not"
            raise InvalidSetting(f"candidates for {observer.name}", found, expected)


# -- a user's code ----------------------------------------------------------------------------


def model_of(where: str, folders: Sequence[Path]) -> nn.Module:
    """The module that a user's function of no arguments returns."""
    made = called("--model", where, folders)
    if not isinstance(made, nn.Module):
        raise InvalidSetting(f"what {where} returned", type(made).__name__, "a torch.nn.Module")
    return made


def loss_of(where: str | None, folders: Sequence[Path]) -> Loss:
    """A user's loss of outputs and targets, a batch's mean; cross entropy if there is none."""
    if where is None:
        return functional.cross_entropy
    return named_function("--loss", where, folders)


# -- subjects ---------------------------------------------------------------------------------


def subject_of_run(
    run: Run, transcript: Transcript, asked: Asked | None, attacks: Sequence[str] = ()
) -> Subject:
    """A run of a recipe, with its own canaries or with a user's candidates; some attacks need
    neither."""
    assembly = assemble(run.recipe)
    check_same_ground(run, assembly.about())
    if asked is None:
        if not run.recipe.data.canaries and needs_canaries(attacks):
            again = recorded_again(run, candidates=False)
            expected = (
                f"canaries to judge by: run the recipe again with them (`{again}`), or ask about "
                f"your own samples with `--candidates FILE`, {IN_A_FILE}"
            )
            raise InvalidSetting("data.canaries", 0.0, expected)
        return subject_of(assembly, transcript, attacks=attacks)
    subject = subject_of(assembly, transcript, asked.candidates)
    check_fit(subject.samples, subject.initial)
    return subject


def subject_of_node(
    transcript: Transcript,
    module: nn.Module,
    loss: Loss,
    asked: Asked,
    *,
    initial: Vector | None = None,
    running_statistics: RunningStatistics = "refuse",
) -> Subject:
    """What a real node recorded, with a user's model and candidates."""
    start = flatten(module, running_statistics=running_statistics) if initial is None else initial
    subject = Subject(
        transcript,
        module,
        loss,
        start,
        asked.candidates,
        _about_node(transcript, module, len(asked.candidates)),
        running_statistics=running_statistics,
    )
    check_fit(subject.samples, subject.initial)
    return subject


def _about_node(transcript: Transcript, module: nn.Module, candidates: int) -> dict[str, Any]:
    settings, me = agreed(transcript.settings), whose(transcript)
    names = transcript.membership.members
    if isinstance(settings, GossipSettings):
        method = f"{settings.method}, {settings.nodes} nodes"
    else:
        sent = str(settings.scheme)
        method = f"{settings.plan.shards} shards; {sent}"
    return {
        "view of": "all members" if me is None else f"{names[me]} (member {me})",
        "members": len(names),
        "clients": len(transcript.membership.clients),
        "candidates": candidates,
        "model": f"{type(module).__name__}, {settings.n:,} parameters",
        "method": method,
        "rounds": max((r.message.header.round for r in transcript.records), default=0),
        "seed": json.loads(transcript.settings).get("seed", 0),
    }
