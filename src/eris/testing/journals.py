"""The laws of a federation of processes, checked afterwards on what its nodes have noted.

One result
    A segment has one result of a round, whoever noted it and in whichever of its lives.
One opening
    Helpers are asked about one set of a segment and round, and a result is of that set.
One authority
    An epoch has one view.
Nothing from nowhere
    Whoever is included in a result has trained in its round.
Nothing lost
    Results form a chain to the last one, and every member that trained knows for each segment what
    came of it: the result of the round, which names the included, or that the federation went on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Line = Mapping[str, Any]
Segment = tuple[int, int]


@dataclass
class Told:
    """What the journals of a federation tell together.

    ``results`` are by segment and round, ``views`` by epoch, ``answered`` is the statement that a
    secure sum was opened by, by segment and round; ``versions`` are by member and
    segment what it has reached; ``trained`` are members with rounds.
    """

    results: dict[tuple[Segment, int], Line] = field(default_factory=dict)
    views: dict[int, Line] = field(default_factory=dict)
    answered: dict[tuple[Segment, int], str] = field(default_factory=dict)
    versions: dict[str, dict[Segment, int]] = field(default_factory=dict)
    trained: set[tuple[str, int]] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    @property
    def members(self) -> Sequence[str]:
        """The members by number, as the newest view lists them."""
        return self.views[max(self.views)]["members"] if self.views else ()

    def chain(self, segment: Segment) -> Iterator[tuple[int, Line]]:
        """The results that led to the last one of a segment, backwards, with their rounds."""
        rounds = [round for key, round in self.results if key == segment]
        at = max(rounds, default=0)
        while at:
            result = self.results.get((segment, at))
            if result is None:
                self.broken.append(f"nothing lost: no result of segment {segment}, round {at}")
                return
            yield at, result
            at = result["previous"]

    def included(self) -> tuple[int, int]:
        """Contributions that count, and those that were made: whole rounds, by segments."""
        segments = sorted({segment for segment, _ in self.results})
        counted = sum(len(result["included"]) for one in segments for _, result in self.chain(one))
        return counted, len(self.trained) * len(segments)


def told(journals: Mapping[str, Sequence[Line]]) -> Told:
    """Read journals, by member; ``broken`` of what is returned says which laws do not hold."""
    found = Told()
    for name, lines in journals.items():
        found.versions[name] = {}
        for line in lines:
            match line["event"]:
                case "result":
                    _note_result(found, name, line)
                case "answered":
                    _note_answer(found, name, line)
                case "snapshot":
                    _reach(found, name, line["segment"], line["at"])
                case "view":
                    _note_view(found, name, line)
                case "trained":
                    found.trained.add((name, line["round"]))
    _check_opened(found)
    _check_included(found)
    _check_known(found)
    return found


def _note_result(found: Told, name: str, line: Line) -> None:
    key = (_segment(line["segment"]), int(line["round"]))
    known = found.results.setdefault(key, line)
    for what in ("previous", "included", "withheld", "digest"):
        if known[what] != line[what]:
            where = f"segment {key[0]}, round {key[1]}, noted by {name}"
            found.broken.append(f"one result: {what} is {line[what]} and {known[what]} of {where}")
    _reach(found, name, line["segment"], line["round"])


def _note_answer(found: Told, name: str, line: Line) -> None:
    key = (_segment(line["segment"]), int(line["round"]))
    if found.answered.setdefault(key, line["closed"]) != line["closed"]:
        where = f"segment {key[0]}, round {key[1]}"
        found.broken.append(f"one opening: {name} answers about a second set of {where}")


def _check_opened(found: Told) -> None:
    """Journals of nodes without secure sums have no answers, nor a statement in their results."""
    for (segment, round), result in found.results.items():
        closed = result.get("closed", "")
        if (
            not result["withheld"]
            and closed.strip("0")
            and (found.answered.get((segment, round)) != closed)
        ):
            where = f"segment {segment}, round {round}"
            found.broken.append(f"one opening: the result of {where} is of a set that no helper "
                                f"answered about")  # fmt: skip


def _note_view(found: Told, name: str, line: Line) -> None:
    known = found.views.setdefault(int(line["epoch"]), line)
    for what in ("from_round", "owners", "clients", "members"):
        if known[what] != line[what]:
            where = f"epoch {line['epoch']}, noted by {name}"
            found.broken.append(f"one authority: {what} {line[what]} and {known[what]} of {where}")


def _reach(found: Told, name: str, segment: Sequence[int], version: int) -> None:
    versions = found.versions[name]
    key = _segment(segment)
    versions[key] = max(versions.get(key, 0), int(version))


def _check_included(found: Told) -> None:
    members = found.members
    for (segment, round), result in found.results.items():
        for number in result["included"]:
            if (members[number], round) not in found.trained:
                where = f"round {round}, segment {segment}"
                found.broken.append(f"nothing from nowhere: {members[number]} in {where}")


def _check_known(found: Told) -> None:
    for segment in sorted({segment for segment, _ in found.results}):
        last = max((round for round, _ in found.chain(segment)), default=0)
        for name, versions in found.versions.items():
            if versions.get(segment, 0) < last:
                where = f"of segment {segment}, whose last is of round {last}"
                found.broken.append(
                    f"nothing lost: {name} knows of round {versions.get(segment, 0)} {where}"
                )


def _segment(pair: Sequence[int]) -> Segment:
    shard, number = pair
    return int(shard), int(number)
