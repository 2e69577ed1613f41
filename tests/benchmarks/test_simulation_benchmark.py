"""The benchmark of the simulator: that the work is the agreed one, and is checked to be done."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.peers.environments import MARK, PFL, Peer
from benchmarks.peers.workload import (
    NETWORKS,
    Stopwatch,
    Task,
    Workload,
    usage,
)
from benchmarks.simulation import (
    Contestant,
    Run,
    Summary,
    agree,
    draw_lists,
    ratios,
    run,
    settings,
    table,
)
from rich.console import Console
from torch.nn import functional

from eris.core.vectors import Vector
from eris.models import create
from eris.training.torch import flatten

SMALL = Workload(clients=4, rounds=3, epochs=2)


# -- the work ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lenet5", "lenet5-colour", "resnet9"])
def test_the_networks_are_those_of_the_package(name: str) -> None:
    ours, theirs = create(name, seed=0), Workload(name).network()
    np.testing.assert_array_equal(flatten(theirs), flatten(ours))
    images = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
    if name == "lenet5":
        images = images[:, :1, :28, :28]
    torch.testing.assert_close(theirs(images), ours(images), rtol=0, atol=0)
    assert set(NETWORKS) == {"lenet5", "lenet5-colour", "resnet9"}


def test_random_images_are_the_agreed_ones() -> None:
    images, labels = Workload().client_data(7)
    draw = np.random.default_rng(1007)
    expected = draw.standard_normal(16 * 28 * 28).reshape(16, 1, 28, 28)
    np.testing.assert_array_equal(images, expected.astype(np.float32))
    np.testing.assert_array_equal(labels, draw.integers(0, 10, 16))


def test_stored_images_are_dealt_out_in_sixteens(tmp_path: Path) -> None:
    inputs, targets = np.arange(64, dtype=np.float32).reshape(32, 2), np.arange(32)
    np.save(tmp_path / "inputs.npy", inputs)
    np.save(tmp_path / "targets.npy", targets)
    workload = Workload(clients=2, images=str(tmp_path))
    images, labels = workload.client_data(1)
    np.testing.assert_array_equal(images, inputs[16:])
    np.testing.assert_array_equal(labels, targets[16:])
    everything, _ = workload.everything()
    np.testing.assert_array_equal(everything.numpy(), inputs)


def plain_loop(workload: Workload) -> Vector:
    """FedAvg as the paper says it: every client from the same model, then the mean."""
    network = workload.network()
    start = [p.detach().clone() for p in network.parameters()]
    for round in range(1, workload.rounds + 1):
        ends = []
        for place, client in enumerate(workload.taking_part(round)):
            for parameter, value in zip(network.parameters(), start, strict=True):
                parameter.data.copy_(value)
            optimiser = torch.optim.SGD(network.parameters(), lr=workload.learning_rate)
            inputs, targets = (torch.from_numpy(a) for a in workload.client_data(client))
            order = torch.from_numpy(workload.order(round, place))
            for batch in torch.split(order, workload.batch) * workload.epochs:
                optimiser.zero_grad()
                functional.cross_entropy(network(inputs[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            ends.append([p.detach().clone() for p in network.parameters()])
        start = [torch.stack(values).mean(dim=0) for values in zip(*ends, strict=True)]
    return np.concatenate([value.numpy().ravel() for value in start])


def test_this_package_does_the_agreed_work(tmp_path: Path) -> None:
    done = run(Contestant("eris", 1), SMALL, tmp_path, turn=0)
    expected = plain_loop(SMALL)
    np.save(tmp_path / "loop.npy", expected)
    agree(flatten(SMALL.network()), [done, replace(done, final=tmp_path / "loop.npy")])
    assert done.norm == pytest.approx(float(np.linalg.norm(expected)), rel=1e-5)
    assert len(done.rounds) == SMALL.rounds
    assert done.memory_mib > 100


@pytest.fixture
def some_of_many(tmp_path: Path) -> Workload:
    """Three of 20 clients a round, their images in an order drawn for the round."""
    draw = np.random.default_rng(3)
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(folder / "inputs.npy", draw.standard_normal((120, 3, 32, 32)).astype(np.float32))
    np.save(folder / "targets.npy", draw.integers(0, 10, 120))
    workload = Workload("lenet5-colour", clients=20, rounds=3, images=str(folder))
    workload = replace(workload, samples=6, batch=2, sampled=3)
    draw_lists(workload)
    return workload


def test_everyone_is_given_our_lists_of_clients_and_orders(
    some_of_many: Workload, tmp_path: Path
) -> None:
    done = run(Contestant("eris", 1), some_of_many, tmp_path, turn=0)
    initial = flatten(some_of_many.network())
    np.save(tmp_path / "loop.npy", plain_loop(some_of_many))
    loop = replace(done, final=tmp_path / "loop.npy")
    agree(initial, [done, loop])
    # Neither other orders of the images nor other clients pass for the same work.
    data = Path(some_of_many.images)
    for name in ("orders", "clients"):
        listed = np.load(data / f"{name}.npy")
        np.save(data / f"{name}.npy", np.flip(listed, axis=-1) if name == "orders" else 19 - listed)
        np.save(tmp_path / "other.npy", plain_loop(some_of_many))
        with pytest.raises(SystemExit, match="did not do the same work"):
            agree(initial, [done, replace(done, final=tmp_path / "other.npy")])
        np.save(data / f"{name}.npy", listed)


def test_lists_are_of_clients_and_of_all_their_images(some_of_many: Workload) -> None:
    rounds = [some_of_many.taking_part(round) for round in (1, 2, 3)]
    assert all(len(set(some)) == 3 and set(some) <= set(range(20)) for some in rounds)
    assert len({tuple(some) for some in rounds}) == 3
    for round in (1, 2, 3):
        orders = [tuple(some_of_many.order(round, place)) for place in range(3)]
        assert len(set(orders)) == 3
        assert all(sorted(order) == list(range(6)) for order in orders)
    everyone = Workload(clients=4)
    assert everyone.taking_part(2) == [0, 1, 2, 3]
    assert everyone.order(2, 0).tolist() == list(range(16))


def test_without_a_floor_there_is_no_ratio_to_it(some_of_many: Workload) -> None:
    summaries = {
        Contestant(name, 1): Summary((made_up(seconds),))
        for name, seconds in (("eris", 1.0), ("pfl", 3.0), ("flower", 6.0))
    }
    found = ratios(summaries, 1)
    assert (found["vs_pfl"], found["vs_flower"]) == (3.0, 6.0)
    assert "vs_floor" not in found
    console = Console(width=110)
    with console.capture() as shown:
        console.print(table(some_of_many, summaries))
    assert "3 of 20 clients, lenet5-colour, 3 step(s) of 2" in shown.get()


def test_the_floor_does_one_batch_of_everything(tmp_path: Path) -> None:
    """With one step that is FedAvg's own gradient, for all clients have as many images."""
    workload = replace(SMALL, epochs=1)
    done = run(Contestant("floor", 1), workload, tmp_path, turn=0)
    np.save(tmp_path / "loop.npy", plain_loop(workload))
    agree(flatten(workload.network()), [done, replace(done, final=tmp_path / "loop.npy")])


# -- checking and reporting -------------------------------------------------------------------


def made_up(seconds: float, *, first: float = 1.0, memory: float = 300.0) -> Run:
    rounds = (first, 2 * seconds, seconds, seconds / 2)
    return Run(rounds, cpu_s=seconds, memory_mib=memory, norm=1.0, final=Path())


def test_who_did_less_is_found_out(tmp_path: Path) -> None:
    initial = np.ones(1000, np.float32)
    way = np.linspace(-1e-2, 1e-2, 1000, dtype=np.float32)
    runs = []
    for number, done in enumerate((1.0, 1.0005, 0.9)):
        final = tmp_path / f"{number}.npy"
        np.save(final, initial + np.float32(done) * way)
        runs.append(replace(made_up(1), final=final))
    agree(initial, runs[:2])
    with pytest.raises(SystemExit, match=r"runs 0 and 2 ended .* did not do the same work"):
        agree(initial, runs)


def test_ratios_are_against_peers_where_they_are_fastest() -> None:
    seconds = {
        ("eris", 1): 0.2,
        ("eris", 2): 0.1,
        ("floor", 1): 0.15,
        ("floor", 2): 0.08,
        ("pfl", 1): 0.3,
        ("pfl", 2): 0.4,
        ("flower", 1): 1.0,
        ("flower", 2): 0.9,
    }
    summaries = {
        Contestant(*who): Summary((made_up(time), made_up(time, first=0.5, memory=350)))
        for who, time in seconds.items()
    }
    assert ratios(summaries, 2) == {
        "vs_pfl": 3.0,
        "vs_flower": 9.0,
        "vs_floor": 0.8,
        "first_round_s": 0.75,
        "memory_mib": 350.0,
    }
    assert ratios(summaries, 1)["vs_floor"] == 0.75


def test_the_first_round_does_not_count_among_the_others() -> None:
    summary = Summary((made_up(1, first=100), made_up(1.5, first=50)))
    assert summary.round_s == 1.25
    assert summary.first_s == 75
    assert summary.spread == pytest.approx(0.5 / 1.25)


def test_every_contestant_runs_in_every_setting() -> None:
    assert settings(("eris", "pfl"), (1, 1)) == [Contestant("eris", 1), Contestant("pfl", 1)]
    assert len(settings(("eris", "pfl"), (1, 2))) == 4


# -- measuring --------------------------------------------------------------------------------


def test_memory_is_that_of_all_descendants() -> None:
    hold = "import sys; held = bytearray(b'x' * (64 << 20)); print('held', flush=True); input()"
    _, before = usage()
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        _, during = usage()
        child.communicate("done\n")
    assert during - before > 60
    assert usage()[1] - before < 60


def test_a_report_is_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = Task(SMALL, threads=2, final=str(tmp_path / "final.npy"))
    watch = Stopwatch()
    watch.start()
    for _ in range(3):
        watch.lap()
    watch.report("eris", task, [np.array([[3.0]]), np.array([4.0])])
    found = json.loads(capsys.readouterr().out)
    assert (found["contestant"], found["threads"], found["norm"]) == ("eris", 2, 5.0)
    assert len(found["rounds"]) == 3
    assert np.load(task.final).tolist() == [3.0, 4.0]


def test_an_unfinished_environment_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path))
    assert not PFL.ready()
    PFL.folder.mkdir(parents=True)
    (PFL.folder / MARK).write_text("[", encoding="utf-8")
    assert not PFL.ready()
    (PFL.folder / MARK).write_text(json.dumps(PFL.wanted), encoding="utf-8")
    said: list[str] = []
    PFL.prepare(said.append)
    assert "from the cache" in said[0]
    assert "pfl[pytorch]==0.6.0" in said[0]
    assert not Peer("pfl", "pfl[pytorch]==0.5.0").ready()
