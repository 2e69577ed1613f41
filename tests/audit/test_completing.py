"""The completion attack on recorded runs: small federations of digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from eris.audit.completing import unreadable
from eris.audit.gradients import SampleModel
from eris.audit.layers import linear_layers, whole
from eris.core.compress import QSGD
from eris.experiments.audits.auditing import AuditOptions, audit_live
from eris.experiments.runs import runner
from eris.experiments.runs.assembly import assemble
from eris.experiments.runs.progress import Progress
from eris.protocol.schemes import Quantised
from support.audits import METHODS, digits
from support.command import Eris

PERCEPTRON = {"model.name": "support.networks:perceptron", "data.samples": 4, "data.canaries": 0.5}


def audited(method: str, observer: str = "aggregator:1", **changes: Any) -> dict[str, Any]:
    recipe = digits(method, **{**PERCEPTRON, "training.rounds": 2, **changes})
    options = AuditOptions((observer,), attacks=("completion",))
    return audit_live(assemble(recipe), options).to_json()


def test_one_shard_of_four_gives_layers_and_images_away() -> None:
    found = audited("eris")
    first, last, *_ = found["completion"]
    assert (first["layer"], last["layer"]) == ("1, 64 × 65", "3, 10 × 65")
    rows = [row for row in found["completion, by client"] if row["layer"] == "1"]
    certified = [row for row in rows if row["outcome"] == "certified" and row["rounds"] == 1]
    assert len(certified) >= 5
    assert all(row["residual"] < 1e-4 for row in certified)
    assert {row["outcome"] for row in rows} <= {"certified", "count", "stuck"}
    shown = [row["> 30 dB"] for row in certified if row["> 30 dB"]]
    right, of = (sum(int(one.split(" of ")[at]) for one in shown) for at in (0, 1))
    assert right >= 0.8 * of > 0
    assert first["AUC"] >= 0.95
    (mean,) = found["published means"]
    assert mean["published %"] == 100
    assert mean["rank"] <= 64
    assert found["findings"] == []


def test_kept_sets_are_undone_and_their_means_are_not_whole() -> None:
    one: dict[str, Any] = {"method.aggregators": 1, "training.rounds": 1}
    found = audited("dsc", "aggregator:0", **one)
    first = found["completion"][0]
    assert 20 < found["completion, by client"][0]["seen %"] < 40
    assert first["certified"].split()[0] != "0"
    (mean,) = found["published means"]
    assert (mean["AUC"], mean["outcome"]) == (None, "count")
    assert 20 < mean["published %"] < 40


def test_local_steps_do_not_protect_the_first_layer() -> None:
    steps: dict[str, Any] = {"training.steps": 3, "training.rounds": 1, "method.aggregators": 2}
    found = audited("eris", "aggregator:0", **steps)
    assert int(found["completion"][0]["certified"].split()[0]) >= 5


def test_a_member_without_shards_has_the_published_mean_only() -> None:
    found = audited("eris", "member:9", **{"training.rounds": 1})
    assert "completion" not in found
    (mean,) = found["published means"]
    assert mean["observer"] == "member 9"


@pytest.mark.parametrize(("method", "least"), [("eris", 99), ("dsc", 60)])
def test_a_member_gets_the_images_of_all_from_a_mean_of_few_samples(
    method: str, least: float
) -> None:
    """Of the whole mean, and of a kept part of it that is completed first."""
    few: dict[str, Any] = {
        "data.clients": 3, "data.samples": 2, "training.rounds": 1, "method.aggregators": 2
    }  # fmt: skip
    if method == "dsc":
        few |= {"method.kept_fraction": 0.75}
    found = audited(method, "member:2", **few)
    assert "completion" not in found, "no client's own update reached it"
    (mean,) = found["published means"]
    assert mean["outcome"] == "certified"
    assert mean["rank"] <= mean["samples"] <= 12
    right, of = (int(one) for one in mean["> 30 dB"].split(" of "))
    assert right >= 0.8 * of > 0
    assert mean["AUC"] >= 0.95
    assert least < mean["published %"] < least + 30


@pytest.mark.parametrize(
    ("method", "observer", "said"),
    [
        ("rotated masks", "aggregator:0", "scheme rotated: coordinates are mixed"),
        ("priprune", "server", "scheme pruned: which entries were pruned"),
        ("el", "neighbour:2", "members gossip"),
        ("eris", "final-model", "the trained model alone shows no update"),
    ],
)
def test_what_shows_no_entries_is_said_by_name(
    method: str, observer: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "el", {"method.name": "el", "method.degree": 3})
    (row,) = audited(method, observer, **{"training.rounds": 1})["completion"]
    assert row["not tried"].startswith(said)


def test_quantised_values_are_said_by_name() -> None:
    assert unreadable(Quantised(QSGD(16))).startswith("scheme quantised: what travels is rounded")


def test_a_model_without_linear_layers_is_said() -> None:
    model: dict[str, Any] = {"model.name": "support.networks:convolution", "training.rounds": 1}
    (row,) = audited("eris", **model)["completion"]
    assert row["not tried"].startswith("the model has no linear layers")


def test_the_command_runs_it_and_membership_alone_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = digits("eris", name="r", **{**PERCEPTRON, "training.rounds": 1})
    runner.start(recipe, tmp_path / "runs", Progress())
    eris = Eris(monkeypatch, capsys)
    assert eris("audit", "r", "--as", "aggregator:1", "--attack", "completion") == 0, eris.err
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    assert len(written["completion, by client"]) == 20
    assert "completion, by client" in eris.out
    assert eris("audit", "r", "--as", "aggregator:1") == 0, eris.err
    written = json.loads((tmp_path / "runs" / "r" / "audit.json").read_text(encoding="utf-8"))
    assert "completion" not in written
    assert written["findings"]


def test_layers_are_found_where_they_lie_in_a_flat_vector() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 6), nn.ReLU(), nn.Linear(6, 4, bias=False)
    )
    network[4].weight.requires_grad_(True)
    data = torch.rand(5, 1, 8, 8), torch.zeros(5, dtype=torch.int64)
    samples = SampleModel(network, functional.cross_entropy, *data)
    first, second = linear_layers(samples)
    assert not first.takes_samples, "it is given features"
    flat = samples.flat.read().numpy()
    for layer, module in ((first, network[2]), (second, network[4])):
        assert isinstance(module, nn.Linear)
        parts = [module.weight.detach().numpy()]
        parts += [module.bias.detach().numpy()] if module.bias is not None else []
        entries = layer.entries(np.arange(len(flat)), flat)
        np.testing.assert_array_equal(whole(layer, entries), np.column_stack(parts))
    some = first.entries(np.arange(0, len(flat), 2), flat[::2])
    assert 0.4 < some.share < 0.6
    assert whole(first, some) is None
