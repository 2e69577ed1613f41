"""What is wrong with keys that live for ever: the paper's own, as controls of the attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from eris.protocol.enccluster import paper_keys
from eris.protocol.enccluster.encrypt import encrypt
from eris.protocol.enccluster.group import ORDER
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.opening import NoLogarithm, ReceivedBook, open_fully
from eris.protocol.enccluster.paper_keys import InsecurePaperKeys, insecure_key
from support.enccluster import LABEL, REACH, Contributor, plain_sums, random_clients, table

NEXT = replace(LABEL, round=LABEL.round + 1)


def sent(part: Contributor, label: BookLabel) -> ReceivedBook:
    scalars = InsecurePaperKeys(part.number, part.keys).scalars
    data = encrypt(part.messages, label, scalars)
    return ReceivedBook.read(part.number, data, len(part.messages), part.mapping, part.weight)


def key_of(parts: Sequence[Contributor]) -> tuple[int, ...]:
    members = [(one.number, one.weight, one.keys.public.exchange) for one in parts]
    return insecure_key([InsecurePaperKeys(p.number, p.keys).share(members) for p in parts])


def test_the_papers_scheme_opens_sums() -> None:
    parts = [replace(one, weight=1 + one.number % 2) for one in random_clients(5)]
    opened = open_fully([sent(p, LABEL) for p in parts], key_of(parts), LABEL, table(), REACH)
    assert opened.tolist() == plain_sums(parts)


def test_a_key_of_one_round_opens_the_next() -> None:
    now, later = random_clients(10, size=100, seed=1), random_clients(10, size=100, seed=2)
    key = key_of(now)
    opened = open_fully([sent(p, NEXT) for p in later], key, NEXT, table(), REACH)
    assert opened.tolist() == plain_sums(later)


def test_the_keys_of_two_sets_subtract_to_one_clients_own() -> None:
    parts = random_clients(5, clusters=16)
    victim = parts[2]
    rest = [one for one in parts if one is not victim]
    own = [(a - b) % ORDER for a, b in zip(key_of(parts), key_of(rest), strict=True)]
    assert own == list(InsecurePaperKeys(victim.number, victim.keys).scalars.values())
    every = np.arange(16, dtype=np.uint32)
    for label in (LABEL, NEXT):
        book = replace(sent(victim, label), mapping=every)
        assert open_fully([book], own, label, table(), REACH).tolist() == list(victim.messages)


def test_a_single_share_of_it_opens_nobody() -> None:
    parts = random_clients(3)
    members = [(one.number, one.weight, one.keys.public.exchange) for one in parts]
    for part in parts:
        share = InsecurePaperKeys(part.number, part.keys).share(members)
        try:
            open_fully([sent(part, LABEL)], share, LABEL, table(), REACH)
        except NoLogarithm:
            continue
        raise AssertionError(f"client {part.number} opened")


def test_no_other_part_of_the_package_knows_it() -> None:
    folder = Path(paper_keys.__file__).parents[2]
    knows = {p.name for p in folder.rglob("*.py") if "paper_keys" in p.read_text(encoding="utf-8")}
    assert knows == set()
    assert (paper_keys.__doc__ or "").startswith("INSECURE ON PURPOSE")
