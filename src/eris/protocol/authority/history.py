"""A ledger's own history, and the marks by which a lost or an older ledger is noticed.

Whatever the directory decides is a *revision* of its ledger, counted for ever. Every answer carries
a mark of the revision it rests on; a member keeps the newest one on its disk before it acts on the
answer, and shows it with every request. So the members remember for the ledger what it must not
forget:

- a mark of another ledger: that one was lost, or the member's folder is of another run;
- a mark of this ledger that it does not know: it is an older copy, and may not decide anything, for
  rounds that members have results of would get second ones.

A mark is sealed with a secret that only the ledger has. Nobody can make one up, so no single
member's word stops a federation.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from eris.core.errors import InvalidSetting
from eris.protocol.authority.enrolment import Refused

LEAST_ENTROPY = 32
LONGEST_TEXT = 64
"""Characters of a mark's texts."""
LAST_REVISION = 2**63 - 1
ANEW = "let all members begin anew with empty folders"


class OldCopy(Refused):
    """The ledger is not the newest: nobody may be served from it."""


@dataclass(frozen=True)
class Mark:
    """A revision of a ledger, as its directory has told a member of it.

    ``ledger`` is the run's own identity. A mark without a seal says no more than that.
    """

    ledger: str
    term: str = ""
    revision: int = 0
    seal: str = ""

    @property
    def founding(self) -> bytes:
        """32 bytes that were drawn with the ledger: of no other run, whatever was agreed on."""
        return hashlib.sha256(f"founding/{self.ledger}".encode()).digest()

    def check(self) -> None:
        """Refuse what no directory has made."""
        texts = (self.ledger, self.term, self.seal)
        if not self.ledger or max(map(len, texts)) > LONGEST_TEXT:
            raise Refused(f"a mark's texts have 1 to {LONGEST_TEXT} characters")
        if not 0 <= self.revision <= LAST_REVISION:
            raise Refused(f"a mark's revision is {self.revision}; expected 0 to {LAST_REVISION}")


def newest(kept: Mark | None, told: Mark | None) -> Mark | None:
    """Of two marks of one ledger the later: answers may overtake each other.

    >>> newest(Mark("run", "term", 3), Mark("run", "term", 2)).revision
    3
    """
    if kept is None or told is None:
        return told or kept
    return told if told.revision >= kept.revision else kept


@dataclass(frozen=True)
class History:
    """Who a ledger is, and the terms in which its revisions were made.

    A term is what one start of the directory has decided, from its first revision on. Two copies of
    a ledger that both went on have the same revisions, but never the same terms.

    >>> history = History.new("0" * 32)
    >>> history.knows(history.mark(3), revision=5), history.knows(history.mark(7), revision=5)
    (True, False)
    """

    secret: str
    terms: tuple[tuple[str, int], ...]

    @classmethod
    def new(cls, entropy: str) -> History:
        """Of a ledger that begins; ``entropy`` are random characters that nobody else has."""
        _check(entropy)
        return cls(entropy, ((_derived(entropy, "term"), 0),))

    @classmethod
    def restored(cls, secret: str, terms: Sequence[tuple[str, int]]) -> History:
        """As it was stored."""
        if not terms or not isinstance(secret, str) or len(secret) < LEAST_ENTROPY:
            raise InvalidSetting("history", "cut short", "a ledger's secret and terms")
        return cls(secret, tuple((str(term), int(first)) for term, first in terms))

    def goes_on(self, entropy: str, revision: int) -> History:
        """With a new term, that begins at a revision."""
        _check(entropy)
        return History(self.secret, (*self.terms, (_derived(entropy, "term"), revision)))

    @property
    def ledger(self) -> str:
        """The ledger's identity, which is the run's own."""
        return _derived(self.secret, "ledger")

    def mark(self, revision: int) -> Mark:
        """What to tell of a revision that is being made now."""
        term = self.terms[-1][0]
        return Mark(self.ledger, term, revision, self._seal(term, revision))

    def genuine(self, mark: Mark) -> bool:
        """Whether this ledger, or a copy of it, has made a mark."""
        expected = self._seal(mark.term, mark.revision)
        return hmac.compare_digest(mark.seal.encode(), expected.encode())

    def knows(self, mark: Mark, revision: int) -> bool:
        """Whether a mark is of this history, which has come to a revision."""
        ends = [first - 1 for _, first in self.terms[1:]] + [revision]
        for (term, first), last in zip(self.terms, ends, strict=True):
            if term == mark.term:
                return first <= mark.revision <= last
        return False

    def compare(self, mark: Mark, revision: int, name: str) -> None:
        """Refuse the member of a name for what its mark says; :class:`OldCopy` if it is right."""
        mark.check()
        if mark.ledger != self.ledger:
            raise Refused(
                f"the directory does not remember this federation: {name} belongs to run "
                f"{mark.ledger[:8]}, its ledger is of run {self.ledger[:8]}; give its host the "
                f"directory.sqlite of that run back, let {name} join this run with an empty "
                f"folder, or {ANEW}"
            )
        if not mark.seal and not mark.revision:
            return  # it knows its run, and no more
        if not self.genuine(mark):
            raise Refused(f"the mark that {name} shows was not made by this federation's directory")
        if not self.knows(mark, revision):
            raise OldCopy(
                f"the directory's ledger is not the newest: {name} was told by it what it does not "
                f"know. It serves nobody, for rounds might get second results; stop its host, "
                f"remove directory.sqlite* there and put the newest copy in its place; if "
                f"that is lost, {ANEW}"
            )

    def _seal(self, term: str, revision: int) -> str:
        text = f"mark/{term}/{revision}".encode()
        return hmac.new(self.secret.encode(), text, hashlib.sha256).hexdigest()[:32]


def _derived(entropy: str, what: str) -> str:
    return hashlib.sha256(f"{what}/{entropy}".encode()).hexdigest()[:32]


def _check(entropy: str) -> None:
    if len(entropy) < LEAST_ENTROPY:
        expected = f"at least {LEAST_ENTROPY} random characters"
        raise InvalidSetting("entropy", f"{len(entropy)} characters", expected)
