"""The halves of secure sums, whatever the scheme: masked words, and helpers that open sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from eris.protocol.round.helping import Helping
from eris.protocol.secure.collecting import SecureDesk
from eris.protocol.secure.sending import SecureSender

if TYPE_CHECKING:
    from eris.protocol.agreement import Agreement
    from eris.protocol.round.replica import Replica
    from eris.protocol.schemes.scheme import Sender
    from eris.protocol.secure.vault import Vault


class SecureHalves:
    """Makes the halves of members whose owners see sums alone."""

    asks: ClassVar[int] = 2
    """Helpers are asked to keep what clients have sealed to them, and to open sums."""

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement

    def sender(self, me: int, vault: Vault | None = None) -> SecureSender:
        """A client's half."""
        assert vault is not None
        return SecureSender(self._agreement.coding, me, vault)

    def desk(self, me: int, replica: Replica, vault: Vault | None = None) -> SecureDesk:
        """What an owner's collectors have in common."""
        assert vault is not None
        return SecureDesk(self._agreement, me, replica, vault)

    def answering(
        self, me: int, replica: Replica, vault: Vault | None, sender: Sender | None
    ) -> Helping:
        """A member's seats."""
        assert vault is not None
        return Helping(self._agreement, me, replica, vault)
