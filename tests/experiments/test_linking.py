"""Laying chunks that others carry at their owners' doors: contents tell, all else does not."""

from __future__ import annotations

import numpy as np

from eris.experiments.audits.linking import ATTACKS, Digits, Linker, measure
from eris.methods.shatter import Shatter


def test_contents_tell_whose_a_chunk_is_and_names_do_not() -> None:
    told: list[str] = []
    found = {
        one.attack: one
        for one in measure(
            nodes=8, rounds=3, chunks=4, degree=4, samples=8, together=1, seed=1, tell=told.append
        )
    }
    assert list(found) == list(ATTACKS)
    assert len(told) == 1 + len(ATTACKS)
    assert "8 nodes of 8 samples, 4 chunks, degree 4, 3 rounds, seed 1" in told[0]
    tries, chance = found["gradient"].tries, found["gradient"].chance
    assert tries > 20
    assert 1 / 6 <= chance < 1 / 2, "at most six of eight are candidates"
    assert found["gradient"].right / tries > 2 * chance
    # Three standard deviations of a binomial number around what lots would give.
    most = tries * chance + 3 * np.sqrt(tries * chance * (1 - chance))
    for attack in ("names", "places", "bytes"):
        assert found[attack].right <= most


def test_who_looks_sees_no_owner_of_a_chunk_but_of_its_guests() -> None:
    federation = Digits(Shatter(virtual_nodes=2, degree=2), 6, 4, seed=0)
    linker = Linker(federation, [0, 1])
    linker.look(1, federation.run(1))
    carried = [own for _, names in federation.known for own in names.values()]
    assert len(linker.clues) == sum(carrier in (0, 1) for carrier, _ in carried)
