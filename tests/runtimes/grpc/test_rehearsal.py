"""A node that has joined has nothing left to compile: its event loop is free for its lease."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from eris.core.combine import FixedPoint
from eris.core.compress import RandP
from eris.core.shards import RandomPlan
from eris.protocol.enccluster.mapped import MappingCoding
from eris.protocol.messages import Outgoing
from eris.protocol.round.member import Member
from eris.protocol.schemes import EncryptedClusters, EncryptedWeights, scheme_for
from eris.protocol.secure.terms import SecureSums
from eris.protocol.settings import Settings
from eris.runtimes.grpc import rehearsal
from eris.runtimes.grpc.rehearsal import rehearse

PROGRAM = """
import gc, json
from collections import deque
import numpy as np
from numba.core.dispatcher import Dispatcher
from eris.core.compress import RandP
from eris.core.rules import RULES
from eris.core.shards import RandomPlan
from eris.protocol.codec import decode, encode
from eris.protocol.round.member import Member
from eris.protocol.view import View
from eris.protocol.settings import Settings
from eris.protocol.authority.standing import Scheduled, Standing
from eris.runtimes.grpc.rehearsal import rehearse
from eris.protocol.schemes import scheme_for

def compiled():
    found = (one for one in gc.get_objects() if isinstance(one, Dispatcher))
    return {(one.py_func.__name__, str(types)) for one in found for types in one.signatures}

def train(settings):
    n = settings.n
    view = Scheduled(View(("anna", "ben", "cleo"), (0, 1, 2), (0, 1, 2), None, 1), 1)
    initial = np.linspace(-1, 1, n, dtype=np.float32)
    members = [
        Member(settings, Standing(me, (view,), ("", "", ""), 9, 0), initial, rounds=2)
        for me in range(3)
    ]
    post, jobs = deque(), {}
    def said(me, out):
        post.extend((me, one) for one in out)
        job = members[me].job
        if job is not None and jobs.get(me) is not job:
            jobs[me] = job
            update = job.model * np.float32(0.1 * (me + 1))
            said(me, members[me].trained(update, 3 + me, 1, 0.0))
    for me, member in enumerate(members):
        said(me, member.start(0.0))
    while not all(member.finished for member in members):
        for me, member in enumerate(members):
            while (out := member.pull(0.0)) is not None:
                said(me, out)
        source, out = post.popleft()
        for to in out.to:
            said(to, members[to].receive(decode(encode(out.message)), source, 0.0))
    assert all((member.model == members[0].model).all() for member in members)
    assert (members[0].model != initial).any()
    # Cleo is started again, with her disk and without it.
    for state in (members[2].state(), None):
        cleo = Member(settings, Standing(2, (view,), ("", "", ""), 9, 3), initial, rounds=2,
                      abstain_through=9)
        if state:
            cleo.restore(state)
        for out in cleo.start(0.0):
            for to in out.to:
                for answer in members[to].receive(decode(encode(out.message)), 2, 0.0):
                    cleo.receive(decode(encode(answer.message)), to, 0.0)
        assert (cleo.model == members[0].model).all()

late = {}
for name, rule in RULES.items():
    for compressor in (None, RandP(0.1), RandP(0.02)) if rule().works_compressed else (None,):
        chosen = rule(trim=0.34) if name == "trimmed-mean" else rule()
        agreed = Settings(
            n=70_000, plan=RandomPlan(3), rule=chosen, quorum=2,
            scheme=scheme_for(compressor).fitted(chosen, np.ones(70_000, np.float32)),
            history=1,
        )
        rehearse(agreed)
        before = compiled()
        train(agreed)
        late[f"{name}, {compressor}"] = sorted(compiled() - before)
print(json.dumps(late))
"""


def test_nothing_is_compiled_in_a_round_that_was_not_in_the_rehearsal() -> None:
    # In a process of its own: other tests have compiled what this one is about.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    late = json.loads(done.stdout)
    assert len(late) > 5
    assert not {which: what for which, what in late.items() if what}


@pytest.mark.parametrize("kept", [None, 0.02])
@pytest.mark.parametrize("value_range", [0.125, 1e-6])
def test_a_small_range_of_values_can_be_rehearsed(kept: float | None, value_range: float) -> None:
    scheme = scheme_for(None if kept is None else RandP(kept))
    precision = FixedPoint(value_range)
    rehearse(Settings(n=9000, plan=RandomPlan(3), scheme=scheme, precision=precision))


@pytest.mark.parametrize("words", ["2 of 3", "3 of 4"])
def test_secure_sums_are_opened_in_a_rehearsal(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved, exchange = [], rehearsal._exchange

    def watched(members: Sequence[Member], said: Sequence[Iterable[Outgoing]]) -> None:
        exchange(members, said)
        moved.append(bool(np.all(members[0].model != 0)))

    monkeypatch.setattr(rehearsal, "_exchange", watched)
    rehearse(Settings(n=100, plan=RandomPlan(3), secure=SecureSums.parse(words), min_included=5))
    assert moved == [True] * 4


@pytest.mark.parametrize("coding", ["packed", "sealed", "huffman", "filter16"])
def test_encrypted_sums_are_opened_in_a_rehearsal(
    coding: MappingCoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few clusters and with a small table of logarithms: neither takes time."""
    opened, exchange = [], rehearsal._exchange

    def watched(members: Sequence[Member], said: Sequence[Iterable[Outgoing]]) -> None:
        exchange(members, said)
        opened.append(members[0].node.replica.included_in(1))

    monkeypatch.setattr(rehearsal, "_exchange", watched)
    rehearse(Settings(n=9000, plan=RandomPlan(3), scheme=EncryptedClusters(coding=coding)))
    assert opened == [1.0] * 2, "of all of them"


def test_a_model_of_encrypted_weights_is_rehearsed_in_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(rehearsal, "_round", lambda agreed, count: sizes.append(agreed.n))
    rehearse(Settings(n=9000, plan=RandomPlan(3), scheme=EncryptedWeights()))
    assert sizes == [3 * rehearsal.ENCRYPTED]
