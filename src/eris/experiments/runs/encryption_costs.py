"""EncCluster's figures 3 and 4: what a client's encryption costs, beside its relatives'.

``eris reproduce enccluster-costs``. Seconds are CPU of one thread on this machine: EncCluster's are
measured, DeTrust-FL's and SEFL's are timed on a sample of weights and *extrapolated*. Bytes follow
the law of :mod:`eris.theory.enccluster_costs`. Curves other than that of 256 bits are not built:
their rows are *computed*, points by their size and seconds by the third power of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.table import Table

from eris.core import fuse, huffman
from eris.core.books import Books
from eris.core.clustering import clustered
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import NOTHING, figure, say
from eris.experiments.runs.printed import printed
from eris.experiments.runs.store import MODEL, runs_root
from eris.model_file import read_model
from eris.models import create
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt, encrypt_each
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.paillier import SECURITY, PaillierPair
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.secure.vault import Vault
from eris.theory.enccluster_costs import (
    FLOAT,
    detrust_round,
    enccluster_round,
    filter_mapping,
    huffman_mapping,
    sefl_upload,
)
from eris.training.flat import flatten

LABEL = BookLabel(bytes(32), epoch=0, round=1, shard=0, segment=0)
KEPT = 0.3
"""Of the weights, what SEFL keeps on CIFAR-10."""
KEY_BITS = (192, 224, 384, 521)
"""Curves that are computed."""
PAILLIER = (256, 2048, 3072)
FIGURE_4 = "EncCluster table 3"
SECONDS, VOLUME = "encryption, s", "sent, × FedAvg"
WHY = {
    "huffman": "printed: 1.1 bits a weight; a Huffman code has 1 a symbol at least: cannot be",
    "detrust": "one point a weight is 33 bytes, 8.25 ×: cannot be",
    "sefl": "an n of 256 bits is 4.8 ×, and is factored on a laptop",
}
"""Why a printed figure differs."""


@dataclass(frozen=True)
class CostSettings:
    """Whose weights are encrypted, and how many of them are sampled."""

    seed: int = 0
    runs: str = ""
    clusters: int = 128
    clients: int = 10
    sample: int = 1500
    paillier_sample: int = 40
    quick: bool = False

    @property
    def weights_sampled(self) -> int:
        """Of DeTrust-FL."""
        return 50 if self.quick else self.sample

    @property
    def paillier(self) -> tuple[int, ...]:
        """Bits of SEFL's n."""
        return PAILLIER[:1] if self.quick else PAILLIER


@dataclass(frozen=True)
class EncryptionCost:
    """One row."""

    label: str
    encryption_s: float
    whole_s: float | None
    """With clustering and the mapping's coding."""
    how: str
    times_fedavg: float
    paper_s: str = NOTHING
    paper_volume: str = NOTHING
    remark: str = ""


def _key(attempt: int) -> bytes:
    """Of a filter that is timed and thrown away."""
    return bytes([attempt]) * fuse.KEY_BYTES


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    """What is made, and the CPU seconds that it took."""
    began = process_time()
    return make(), process_time() - began


class Costs:
    """The rows for one vector of weights."""

    def __init__(self, weights: Vector, settings: CostSettings) -> None:
        self.weights, self.settings = weights, settings
        self._vault = Vault.simulated(settings.seed, 0)
        self._secret = self._vault.renew(1).process_secret
        self._scale = CentroidScale(settings.clients, settings.clients)

    def _scaled(self, values: Vector) -> list[int]:
        return [int(value) for value in self._scale.scaled(values, 1)]

    def _scalars(self, messages: Sequence[int], slots: int) -> ClientScalars:
        said = content(messages)
        return ClientScalars.drawn(self._secret, self._vault.fresh(1), LABEL, said, slots)

    def enccluster(self) -> list[EncryptionCost]:
        """Without filter and with the paper's, measured; then other curves, computed."""
        settings, d = self.settings, len(self.weights)
        clustered(self.weights[:500], 4, fewer="allow")  # compiles
        book, clustering = timed(lambda: clustered(self.weights, settings.clusters, fewer="allow"))
        books = Books((d,), (book.clusters,))
        messages = self._scaled(book.centroids)
        _, encryption = timed(lambda: encrypt(messages, LABEL, self._scalars(messages, 1)))
        fuse.build(_key, 0, book.assignment[:100], 8)
        huffman.encode(book.assignment[:100], Books((100,), (book.clusters,)))
        _, coding = timed(lambda: huffman.encode(book.assignment, books))
        _, filtering = timed(lambda: fuse.build(_key, 0, book.assignment, 8))
        counts = np.bincount(book.assignment, minlength=book.clusters)
        lengths = huffman.code_lengths(counts).tolist()
        forms = {
            "EncCluster without filter": (coding, huffman_mapping(counts.tolist(), lengths)),
            "EncCluster": (filtering, filter_mapping(d, 8)),
        }
        rows = []
        for label, (mapping_s, size) in forms.items():
            table = "EncCluster table 4" if label != "EncCluster" else FIGURE_4
            row = f"{label}, IID, ρ = 1" if table == FIGURE_4 else label
            rows.append(EncryptionCost(
                label, encryption, clustering + encryption + mapping_s, "measured",
                enccluster_round(d, book.clusters, size, settings.clients).times_fedavg(d),
                printed(table, row, SECONDS), printed(table, row, VOLUME),
                WHY["huffman"] if label != "EncCluster" else "",
            ))  # fmt: skip
        for bits in KEY_BITS:
            law = enccluster_round(d, book.clusters, filter_mapping(d, 8), settings.clients, bits)
            rows.append(EncryptionCost(
                f"EncCluster, {bits} bits", encryption * (bits / 256) ** 3, None, "computed",
                law.times_fedavg(d),
                *(("6.44", "0.303 at most") if bits == 521 else ()),
            ))  # fmt: skip
        return rows

    def detrust(self) -> EncryptionCost:
        """Every weight; of a sample."""
        settings, d = self.settings, len(self.weights)
        messages = self._scaled(self.weights[: settings.weights_sampled])
        scalars = self._scalars(messages, 2)
        _, seconds = timed(lambda: encrypt_each(messages, LABEL, scalars))
        row = "DeTrust-FL, IID, ρ = 1"
        return EncryptionCost(
            "DeTrust-FL", seconds / len(messages) * d, None,
            f"extrapolated from {len(messages):,} weights",
            detrust_round(d, settings.clients).times_fedavg(d),
            printed(FIGURE_4, row, SECONDS), printed(FIGURE_4, row, VOLUME), WHY["detrust"],
        )  # fmt: skip

    def sefl(self) -> list[EncryptionCost]:
        """The largest weights under Paillier; of a sample."""
        d, sample = len(self.weights), self.settings.paillier_sample
        kept, rows = math.ceil(KEPT * d), []
        for bits in self.settings.paillier:
            pair = PaillierPair.drawn(bits, os.urandom)
            some = np.rint(self.weights[:sample].astype(np.float64) * 2**20).astype(int).tolist()
            _, seconds = timed(partial(pair.public.encrypt, some, os.urandom))
            small = bits == PAILLIER[0]
            level = f"{SECURITY[bits]}-bit security" if SECURITY.get(bits) else "no security"
            row = "SEFL, IID, ρ = 1"
            rows.append(EncryptionCost(
                f"SEFL, n of {bits} bits ({level})", seconds / len(some) * kept, None,
                f"extrapolated from {len(some)} weights",
                sefl_upload(d, kept, bits) / (FLOAT * d),
                printed(FIGURE_4, row, SECONDS) if small else NOTHING,
                printed(FIGURE_4, row, VOLUME) if small else NOTHING,
                WHY["sefl"] if small else "",
            ))  # fmt: skip
        return rows

    def rows(self) -> list[EncryptionCost]:
        """All of them."""
        return [*self.enccluster(), self.detrust(), *self.sefl()]


def weights_of(settings: CostSettings) -> tuple[Vector, str]:
    """ResNet-20 as ``eris reproduce enccluster-cifar10`` has trained it, if it has; else new."""
    root = runs_root(Path(settings.runs) if settings.runs else None)
    path = root / f"enccluster-cifar10-fedavg-{settings.seed}" / MODEL
    if path.is_file():
        return read_model(path), f"ResNet-20 of {path.parent.name}"
    made = flatten(create("resnet20", settings.seed))
    return made, f"ResNet-20 at its start, seed {settings.seed}"


def shown(rows: Sequence[EncryptionCost], title: str) -> Table:
    """Ours beside the paper's."""
    table = Table(
        "a client", "encryption, CPU s", "with clustering and coding", "how", "sent, × FedAvg",
        "paper, s", "paper, × FedAvg", "", title=title,
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.label, f"{row.encryption_s:,.4g}", figure(row.whole_s, ".3g"), row.how,
            f"{row.times_fedavg:.3f}", row.paper_s, row.paper_volume, row.remark,
        )  # fmt: skip
    return table


def main(given: list[str] | None = None) -> None:
    """Print the table."""
    options = ("seed", "runs", "clusters", "clients", "sample", "paillier_sample", "quick")
    settings = asked(CostSettings, __name__, __doc__, options, given)
    if settings.sample < 2 or settings.paillier_sample < 1:
        found = (settings.sample, settings.paillier_sample)
        raise InvalidSetting("sample, paillier_sample", found, "at least 2 and 1")
    weights, which = weights_of(settings)
    rows = Costs(weights, settings).rows()
    title = (
        f"EncCluster's figures 3 and 4: {which}, {len(weights):,} weights, κ {settings.clusters}"
    )
    told(shown(rows, title), 190, {"weights": which, "rows": [asdict(row) for row in rows]})
    say(
        "The paper's seconds are on its own machine; orders and ratios compare. Its EncCluster "
        "seconds hold clustering, ours stand in a column of their own."
    )


if __name__ == "__main__":
    main()
