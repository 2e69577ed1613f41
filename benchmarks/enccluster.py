"""What EncCluster costs beside its relatives: ``python benchmarks/enccluster.py``.

Ten clients of 270,000 Laplace weights, 128 clusters, f = 20. Measured in CPU seconds of one thread:
a client's encryption of its centroids beside DeTrust-FL's and SEFL's of weights (both timed on a
sample and *extrapolated*), and the server's opening by both of its paths, whose sums must be those
of the plain integers. Then one round of the simulator with each way a mapping travels: its encoded
messages beside what the law of bytes says. The table of logarithms is built on first use and is not
counted.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from benchmarks.growth import PreparedUpdates
from rich.console import Console
from rich.table import Table

from eris.core import huffman
from eris.core.books import Books
from eris.core.clustering import Codebook, clustered
from eris.core.codings import pack_index, unpack_index
from eris.core.errors import PrivacyWarning
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data.cache import cache_root
from eris.federation import Federation
from eris.methods.registry import create
from eris.protocol.enccluster.content import content
from eris.protocol.enccluster.encrypt import ClientScalars, encrypt, encrypt_each
from eris.protocol.enccluster.labels import BookLabel
from eris.protocol.enccluster.logarithms import Integers, LogarithmTable
from eris.protocol.enccluster.opening import ReceivedBook, open_by_differences, open_fully
from eris.protocol.enccluster.paillier import SECURITY, PaillierPair
from eris.protocol.enccluster.scale import CentroidScale
from eris.protocol.enccluster.sets import SetMember, SetStatement, contribution_digest
from eris.protocol.enccluster.shares import ShareDesk, key_share
from eris.protocol.messages import Contribution, Result, Reveal, RevealRequest
from eris.protocol.secure.vault import Vault
from eris.runtimes.logarithm_tables import kept_table
from eris.theory.enccluster_costs import (
    HEADER,
    SEALED,
    RoundBytes,
    detrust_round,
    enccluster_round,
    filter_mapping,
    huffman_mapping,
    packed_mapping,
    sefl_upload,
)
from eris.training.trainer import LocalUpdate, PerSampleNoise

SEED, KEPT = 5, 0.3
"""Of everything drawn; and the share of weights that SEFL keeps on CIFAR-10."""
FORMS: Mapping[str, Mapping[str, str]] = {
    "packed": {},
    "sealed": {"coding": "sealed"},
    "huffman": {"coding": "huffman"},
    "filter8": {"coding": "filter8", "policy": "first"},
    "filter16": {"coding": "filter16", "policy": "first"},
}
"""Ways of the mapping whose bytes are looked at; filters without a list of exceptions, whose
length no law knows."""
LABEL = BookLabel(bytes(32), epoch=0, round=1, shard=0, segment=0)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    weights: int = 270_000
    clients: int = 10
    clusters: int = 128
    fraction_bits: int = 20
    sample: int = 1_500
    """Weights that DeTrust-FL is timed on."""
    paillier: tuple[int, ...] = (256, 2048, 3072)
    """Bits of n that SEFL is timed with."""
    paillier_sample: int = 40
    repeats: int = 3

    @property
    def name(self) -> str:
        """Of the size, in figures: 270k_n10."""
        d = self.weights
        return f"{d // 1000}k_n{self.clients}" if d % 1000 == 0 else f"{d}_n{self.clients}"

    @property
    def scale(self) -> CentroidScale:
        """How centroids become integers; all clients have one sample."""
        return CentroidScale(self.clients, self.clients, fraction_bits=self.fraction_bits)

    @property
    def kept(self) -> int:
        """Weights that SEFL encrypts."""
        return math.ceil(KEPT * self.weights)


@dataclass
class Times:
    """CPU seconds by what was done, each of them in turn."""

    each: dict[str, list[float]] = field(default_factory=dict)

    def of(self, what: str, make: Callable[[], Made]) -> Made:
        """Do it, and note how long it took."""
        began = process_time()
        made = make()
        self.each.setdefault(what, []).append(process_time() - began)
        return made

    def __getitem__(self, what: str) -> float:
        """The median."""
        return statistics.median(self.each[what])


def model(plan: Plan, client: int) -> Vector:
    """Weights of a client: Laplace, a tenth of their deviation its own."""
    uniform = Stream(SEED, "weights").uniform(0, plan.weights) - 0.5
    shared = -0.05 * np.sign(uniform) * np.log1p(-2 * np.abs(uniform))
    own = 0.007 * Stream(SEED, "deviations", client=client).normal(0, plan.weights)
    return np.asarray(np.clip(shared + own, -1.9, 1.9), np.float32)


# -- one segment, from weights to its sum ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sent:
    """What a client sends of a segment, and what it keeps."""

    client: int
    book: Codebook
    messages: list[int]
    ciphertexts: bytes
    mapping: bytes
    scalars: ClientScalars

    def digest(self) -> bytes:
        """Of the contribution."""
        return contribution_digest(LABEL, self.client, (self.ciphertexts,), self.mapping)


def send(plan: Plan, client: int, times: Times) -> Sent:
    """A client's half; its encryption is all that needs a secret."""
    vault, weights = Vault.simulated(SEED, client), model(plan, client)
    book = times.of("cluster", lambda: clustered(weights, plan.clusters))
    books = Books((plan.weights,), (book.clusters,))
    messages = plan.scale.scaled(book.centroids, 1).tolist()
    mapping = times.of("pack", lambda: pack_index(book.assignment, books))
    times.of("huffman", lambda: huffman.encode(book.assignment, books))
    keys, fresh = vault.renew(1), vault.fresh(1)

    def encrypted() -> tuple[ClientScalars, bytes]:
        said = content(messages, mapping)
        scalars = ClientScalars.drawn(keys.process_secret, fresh, LABEL, said)
        return scalars, encrypt(messages, LABEL, scalars)

    scalars, ciphertexts = times.of("encrypt", encrypted)
    return Sent(client, book, messages, ciphertexts, mapping, scalars)


def key_of(sent: Sequence[Sent], times: Times) -> tuple[int, ...]:
    """The key of all clients, of the shares that they give."""
    keys = {one.client: Vault.simulated(SEED, one.client).renew(1) for one in sent}
    members = tuple(
        SetMember(one.client, 1, one.digest(), keys[one.client].public.exchange) for one in sent
    )
    desk = ShareDesk(statement := SetStatement(LABEL, members))
    for one in sent:
        secrets = [one.scalars.values()]
        own = (keys[one.client], one.client, statement, [LABEL], secrets)
        desk.take(one.client, times.of("share", lambda own=own: key_share(*own)))  # type: ignore[misc]
    return desk.key()[0]


def opened(
    plan: Plan, sent: Sequence[Sent], key: Sequence[int], table: LogarithmTable,
    path: Callable[..., Integers],
) -> Integers:  # fmt: skip
    """The server's half: points and mappings are read, sums are opened."""
    books = Books((plan.weights,), (plan.clusters,))
    received = [
        ReceivedBook.read(
            one.client, one.ciphertexts, plan.clusters,
            unpack_index(one.mapping, books).astype(np.uint32),
        )
        for one in sent
    ]  # fmt: skip
    return path(received, key, LABEL, table, plan.scale.bound)


def segment(plan: Plan, times: Times) -> bool:
    """Measure both halves; whether both paths give the sums of the plain integers."""
    clustered(model(plan, 0)[:1000], 2)  # compiles
    pack_index(np.zeros(8, np.uint16), books := Books((8,), (2,)))
    huffman.encode(np.zeros(8, np.uint16), books)
    reach = 1 << (plan.scale.bound - 1).bit_length()
    table = kept_table(cache_root() / "logarithms", reach)
    sent = [send(plan, client, times) for client in range(plan.clients)]
    key = key_of(sent, times)
    expected = sum(np.array(one.messages)[one.book.assignment] for one in sent)
    right = True
    for _ in range(plan.repeats):
        for what, path in (("full", open_fully), ("shortcut", open_by_differences)):
            found = times.of(
                what,
                lambda path=path: opened(plan, sent, key, table, path),  # type: ignore[misc]
            )
            right &= bool(np.array_equal(found, expected))
    return right


def relatives(plan: Plan, times: Times) -> None:
    """What others spend on a weight, on few of them."""
    weights = model(plan, 0)[: plan.sample]
    messages = plan.scale.scaled(weights, 1).tolist()
    vault = Vault.simulated(SEED, 0)
    keys = vault.renew(1)
    said = content(messages)
    scalars = ClientScalars.drawn(keys.process_secret, vault.fresh(1), LABEL, said, slots=2)
    for _ in range(plan.repeats):
        times.of("detrust", lambda: encrypt_each(messages, LABEL, scalars))
    some = messages[: plan.paillier_sample]
    for bits in plan.paillier:
        pair = PaillierPair.drawn(bits, os.urandom)
        for _ in range(plan.repeats):
            times.of(f"sefl_{bits}", partial(pair.public.encrypt, some, os.urandom))


# -- bytes ----------------------------------------------------------------------------------------


class Standing(PreparedUpdates):
    """Clients whose weights after training are prepared; nothing is trained."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.clients, plan.weights)
        self._plan = plan

    def updates(
        self,
        clients: Sequence[int],
        models: Vector | Sequence[Vector],
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """From a model of zeros at a rate of 1, the update is the weights' negative."""
        for client in clients:
            yield LocalUpdate(-model(self._plan, client), samples=1)


def round_bytes(plan: Plan, method: str, **settings: Any) -> dict[type, list[int]]:
    """The encoded messages of one simulated round, by kind, each as often as it is delivered."""
    start = np.zeros(plan.weights, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        federation = Federation(
            Standing(plan), start, create(method, **settings), samples=[1] * plan.clients, seed=SEED
        )
        fit = federation.fit(1, progress=False, record=True)
    if fit.history[0].included != 1 or fit.transcript is None:
        raise SystemExit(f"{method}: {fit.history[0].included} of the clients are in the round")
    sizes: dict[type, list[int]] = {}
    for record in fit.transcript.records:
        sizes.setdefault(type(record.message), []).extend(
            [len(record.data)] * len(record.receivers)
        )
    return sizes


def law(plan: Plan, form: str) -> RoundBytes:
    """What a round of EncCluster is by the law."""
    d, clusters = plan.weights, plan.clusters
    match form:
        case "packed":
            mapping = packed_mapping(d, clusters)
        case "sealed":
            mapping = packed_mapping(d, clusters) + SEALED
        case "huffman":
            mapping = huffman_law(plan)
        case _:
            mapping = filter_mapping(d, int(form.removeprefix("filter")))
    return enccluster_round(d, clusters, mapping, plan.clients)


def huffman_law(plan: Plan) -> int:
    """The mean over the clients of a Huffman code's bytes, by its lengths."""
    found = []
    for client in range(plan.clients):
        counts = np.bincount(clustered(model(plan, client), plan.clusters).assignment)
        found.append(huffman_mapping(counts.tolist(), huffman.code_lengths(counts).tolist()))
    return round(statistics.mean(found))


def over_law(plan: Plan, sizes: Mapping[type, Sequence[int]], expected: RoundBytes) -> float:
    """Encoded bytes of a round over those of the law, with a header a message."""
    each = {
        Contribution: expected.contribution,
        RevealRequest: expected.question,
        Reveal: expected.share,
        Result: expected.result,
    }
    for kind, found in sizes.items():
        if kind not in each or len(found) != plan.clients:
            raise SystemExit(f"{len(found)} messages {kind.__name__}; the law has none such")
    allowed = sum((each[kind] + HEADER) * len(found) for kind, found in sizes.items())
    return sum(map(sum, sizes.values())) / allowed


def sent_up(plan: Plan, sizes: Mapping[type, Sequence[int]]) -> float:
    """What a client sends, in bytes; a plain model goes in several segments."""
    return sum(sum(sizes.get(kind, ())) for kind in (Contribution, Reveal)) / plan.clients


# -- the report -----------------------------------------------------------------------------------


def figures(plan: Plan, times: Times, exact: bool) -> dict[str, float]:
    """Of the measured times; what is extrapolated says so."""
    every = times["detrust"] * plan.weights / plan.sample
    whole = times["cluster"] + times["encrypt"] + times["pack"]
    found = {
        "client_encrypt_detrust_over_ours": every / times["encrypt"],
        "client_encrypt_detrust_over_ours_with_clustering": every / whole,
        "client_encrypt_s": times["encrypt"],
        "client_cluster_s": times["cluster"],
        "client_share_s": times["share"],
        "client_encrypt_detrust_extrapolated_s": every,
        f"server_s_{plan.name}": times["full"],
        f"server_shortcut_s_{plan.name}": times["shortcut"],
        "aggregate_exact": float(exact),
    }
    for bits in plan.paillier:
        a_weight = times[f"sefl_{bits}"] / plan.paillier_sample
        found[f"client_encrypt_sefl_{bits}_extrapolated_s"] = a_weight * plan.kept
    return found


def report(plan: Plan, times: Times, console: Console) -> None:
    """A client's times, beside what security they buy."""
    table = Table("client's encryption", "of", "CPU s", "", "upload by law, × FedAvg")
    fedavg = 4 * plan.weights

    def row(name: str, of: str, seconds: float, mark: str, upload: float) -> None:
        table.add_row(name, of, f"{seconds:,.4f}", mark, f"{upload / fedavg:.4f}")

    packed = law(plan, "packed").up
    whole = times["cluster"] + times["encrypt"] + times["pack"]
    row("EncCluster", f"{plan.clusters} centroids", times["encrypt"], "measured", packed)
    row("with clustering, packing", "the same", whole, "measured", packed)
    every = times["detrust"] * plan.weights / plan.sample
    told = f"extrapolated from {plan.sample:,}"
    points = detrust_round(plan.weights, plan.clients).up
    row("DeTrust-FL", f"{plan.weights:,} weights", every, told, points)
    for bits in plan.paillier:
        seconds = times[f"sefl_{bits}"] / plan.paillier_sample * plan.kept
        told = f"extrapolated from {plan.paillier_sample}"
        known = f"{SECURITY[bits]}-bit security" if SECURITY.get(bits) else "not secure"
        size = sefl_upload(plan.weights, plan.kept, bits)
        row(f"SEFL, n of {bits} bits, {known}", f"{plan.kept:,} weights", seconds, told, size)
    console.print(table)
    console.print(
        f"Server, {plan.weights:,} weights of {plan.clients} clients: {times['full']:.3f} s by the "
        f"full path, {times['shortcut']:.4f} s by differences of centroids.",
        soft_wrap=True,
    )


def measure(plan: Plan, console: Console) -> dict[str, float]:
    """All of it."""
    times = Times()
    exact = segment(plan, times)
    relatives(plan, times)
    report(plan, times, console)
    found, ratios = figures(plan, times, exact), []
    plain = sent_up(plan, round_bytes(plan, "fedavg"))
    usual = {"clusters": plan.clusters, "fraction_bits": plan.fraction_bits}
    for form, settings in FORMS.items():
        sizes = round_bytes(plan, "enccluster", **usual, **settings)
        up = sent_up(plan, sizes)
        ratios.append(over_law(plan, sizes, law(plan, form)))
        found[f"upload_times_fedavg_{form}"] = up / plain
        console.print(
            f"{form}: {up:,.0f} bytes up, {up / plain:.4f} × FedAvg; all "
            f"messages {ratios[-1]:.4f} of the law",
            soft_wrap=True,
        )
    found["wire_bytes_over_law"] = max(ratios)
    return {name: float(f"{value:.5g}") for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    usual = Plan()
    parser.add_argument("--weights", type=int, default=usual.weights)
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--clusters", type=int, default=usual.clusters)
    parser.add_argument("--fraction-bits", type=int, default=usual.fraction_bits)
    parser.add_argument("--sample", type=int, default=usual.sample)
    parser.add_argument("--paillier", type=int, nargs="*", default=usual.paillier)
    parser.add_argument("--paillier-sample", type=int, default=usual.paillier_sample)
    parser.add_argument("--repeats", type=int, default=usual.repeats)
    options = vars(parser.parse_args())
    plan = Plan(**options | {"paillier": tuple(options["paillier"])})
    console = Console(highlight=False)
    print(json.dumps({"benchmark": "enccluster", "figures": measure(plan, console)}))


if __name__ == "__main__":
    main()
