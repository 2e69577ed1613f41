"""Reports as pages: of real runs and of nodes' journals, complete in one file, and safe."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from eris.runtimes.grpc.journal import Journal
from eris.web import leaks
from eris.web.blocks import Block, Curves, Document, Section, Series
from eris.web.federation import StoredFederation
from eris.web.page import embedded, written
from support.command import Eris

RUN = ("run", "--data", "digits", "--clients", "5", "--samples", "8", "--rounds", "3",
       "--set", "aggregators=2", "--evaluate-every", "1")  # fmt: skip


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self._inside = text, ""
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    def blocks(self) -> dict[str, dict[str, Any]]:
        return {b["title"]: b for s in self.document["sections"] for b in s["blocks"]}


def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_a_report_shows_what_a_run_stored(eris: Eris, tmp_path: Path) -> None:
    assert eris(*RUN, "--name", "one", "--record") == 0
    assert eris("report", "one") == 0
    assert "runs/one/report.html" in eris.out
    found = page(tmp_path / "runs/one/report.html")
    blocks = found.blocks()
    stored = (tmp_path / "runs/one/rounds.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in stored.splitlines()]
    accuracy = blocks["accuracy"]["series"][0]["points"]
    assert accuracy == [[line["round"], line["metrics"]["accuracy"]] for line in lines]
    up = blocks["Bytes a client and round"]["series"][0]["points"]
    assert up == [[line["round"], line["clients_sent"] / 5] for line in lines]
    assert {span["row"]: span["who"] for span in blocks["Who owned which shard"]["spans"]} == {
        "shard 0": "client-0",
        "shard 1": "client-1",
    }
    assert all((s["start"], s["stop"]) == (1, 4) for s in blocks["Who owned which shard"]["spans"])
    links = blocks["Bytes over each link, all rounds"]["values"]
    sent = sum(sum(line["sent"].values()) for line in lines)
    assert sum(value for row in links for value in row if value) == sent
    assert "[method]" in blocks["recipe.toml"]["text"]
    assert "eris audit one" in next(
        s["note"] for s in found.document["sections"] if s["title"].startswith("What observers")
    )


def test_a_report_loads_nothing_from_anywhere(eris: Eris, tmp_path: Path) -> None:
    assert eris(*RUN, "--name", "one") == 0
    assert eris("report", "one", "--out", "page.html") == 0
    found = page(tmp_path / "page.html")
    assert all(address.startswith(("#", "data:")) for address in found.addresses)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", found.text)
    assert "default-src 'none'" in found.text
    assert len(found.text.encode()) < 1_000_000


def test_runs_beside_each_other_with_the_front_of_those_audited(eris: Eris, tmp_path: Path) -> None:
    aucs = {"one": 0.9, "two": 0.6, "three": 0.7}
    for name, auc in aucs.items():
        assert eris(*RUN, "--name", name, "--seed", str(len(name))) == 0
        findings = [
            {"observer": observer, "score": score, "roc": {"auc": found, "low": 0.5, "high": 1}}
            for observer, score, found in (
                ("aggregator 0", "joint", auc),
                ("final model", "loss", 0.99),
            )
        ]
        figures = json.dumps({"findings": findings})
        (tmp_path / "runs" / name / "audit.json").write_text(figures, encoding="utf-8")
    assert eris("report", *aucs) == 0
    blocks = page(tmp_path / "runs/one-two-three.html").blocks()
    front = blocks["accuracy against leakage"]
    assert {mark["name"]: mark["x"] for mark in front["marks"]} == aucs
    best = max(front["marks"], key=lambda mark: mark["y"])
    least = min(front["marks"], key=lambda mark: mark["x"])
    assert {best["name"], least["name"]} <= {*front["front"]}
    for mark in front["marks"]:
        beaten = any(o["x"] < mark["x"] and o["y"] > mark["y"] for o in front["marks"])
        assert not (beaten and mark["name"] in front["front"])
    assert ["seed", "3", "3", "5"] in blocks["Where they differ"]["rows"]


def test_an_audit_by_any_attack_is_shown_with_its_tables_and_pictures(
    eris: Eris, tmp_path: Path
) -> None:
    assert eris(*RUN, "--name", "one", "--record", "--steps", "1", "--batch-size", "0") == 0
    assert eris("audit", "one", "--attack", "cosine", "--iterations", "2") == 0
    assert eris("report", "one") == 0
    blocks = page(tmp_path / "runs/one/report.html").blocks()
    stored = json.loads((tmp_path / "runs/one/audit.json").read_text(encoding="utf-8"))
    (name,) = [key for key in stored if key.startswith("reconstruction")]
    table = blocks[name[0].upper() + name[1:]]
    assert [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]] == stored[name]
    assert [caption for caption, _ in blocks["Pictures of the audit"]["images"]] == ["cosine"]
    assert "Every observer and score" not in blocks  # nobody was asked about members


def test_scores_of_candidates_of_whom_nothing_is_known_are_an_audit_too(tmp_path: Path) -> None:
    figures = {"about": {}, "scores": [], "exposed": [{"observer": "a", "coordinates": 3}]}
    (tmp_path / "audit.json").write_text(json.dumps(figures), encoding="utf-8")
    found = leaks.read(tmp_path)
    assert found is not None
    assert leaks.worst(found) is None
    assert leaks.blocks(tmp_path, found) == []


def test_pictures_that_are_too_large_for_a_page_are_named(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    for name, size in (("a", leaks.MOST_PICTURES + 1), ("b", 10)):
        (tmp_path / "audit" / f"{name}.png").write_bytes(b"." * size)
    (block,) = leaks.blocks(tmp_path, {"findings": []})
    assert [caption for caption, _ in _of(block, "images")] == ["b"]
    assert "a.png" in block.note


def test_a_federation_from_its_journals(tmp_path: Path) -> None:
    for name, model in (("anna", "ab"), ("ben", "ab")):
        with _journal(tmp_path, name) as journal:
            owners = ["anna", "ben"]
            for epoch, first in ((1, 1), (2, 3)):
                journal.write("view", epoch=epoch, from_round=first, owners=owners,
                              members=["anna", "ben"], clients=["anna", "ben"])  # fmt: skip
                owners = ["ben", "ben"]
            for round in (1, 2, 3):
                journal.write("began", round=round)
                journal.write("trained", round=round, metrics={"loss": 1 / round}, samples=3)
                journal.write("evaluated", round=round, metrics={"accuracy": round / 4})
                journal.write("round", round=round, seconds=0.5, included=1.0, sent=10 * round,
                              received=7, seen=0.25)  # fmt: skip
            journal.write("result", round=3, segment=[0, 0], withheld=True)
            journal.write("finished", round=3, metrics={"accuracy": 0.5}, model=model)
    document = StoredFederation.at(tmp_path).document()
    blocks = {b.title: b for s in document.sections for b in s.blocks}
    spans = [(s.row, s.start, s.stop, s.who) for s in _of(blocks["Who owned which shard"], "spans")]
    assert spans == [("shard 0", 1, 3, "anna"), ("shard 0", 3, 4, "ben"), ("shard 1", 1, 4, "ben")]
    sent = {one.name: one.points for one in _of(blocks["Bytes sent"], "series")}
    assert sent["anna"] == [(1, 10), (2, 20), (3, 30)]
    said = {one.name: one.points for one in _of(blocks["accuracy"], "series")}
    assert said["ben"] == [(1, 0.25), (2, 0.5), (3, 0.5)]  # the last of when it had finished
    assert ("models at the end", "the same at all 2 (SHA-256 ab…)") in document.facts
    told = [row[2] for row in _of(blocks["Events"], "rows")]
    assert "round 3: segment [0, 0] is withheld" in told
    assert any(line.startswith("epoch 2 from round 3") for line in told)
    assert "1 DIFFERENT" not in written(document)


def test_nodes_that_gossip_have_models_of_their_own_and_no_shards(tmp_path: Path) -> None:
    for name in ("anna", "ben"):
        with _journal(tmp_path, name) as journal:
            journal.write("view", epoch=1, from_round=1, owners=[], members=["anna", "ben"],
                          clients=["anna", "ben"])  # fmt: skip
            journal.write("round", round=1, seconds=0.5, mixed=1, missed=0, sent=10, received=7)
            journal.write("finished", round=1, metrics={}, model=name)
    document = StoredFederation.at(tmp_path).document()
    blocks = {b.title: b for s in document.sections for b in s.blocks}
    assert dict(document.facts)["models at the end"] == "one a node"
    assert "Who owned which shard" not in blocks
    mixed = _of(blocks["Neighbours' shares that came in time"], "series")
    assert [one.points for one in mixed] == [[(1, 1)], [(1, 1)]]


def test_models_that_differ_are_said_to(tmp_path: Path) -> None:
    for name in ("anna", "ben"):
        with _journal(tmp_path, name) as journal:
            journal.write("finished", round=1, metrics={}, model=name)
    assert ("2 DIFFERENT ones" in dict(StoredFederation.at(tmp_path).document().facts)[
        "models at the end"])  # fmt: skip


def test_names_cannot_break_out_of_a_page() -> None:
    evil = "</script><script>alert(1)</script>\u2028"
    block: Block = Curves(evil, x=evil, series=[Series(evil, [(1, 2)])])
    found = Page(written(Document(evil, evil, [(evil, evil)], [Section(evil, [block])], [evil])))
    assert len(found.scripts) == 2
    assert found.document["title"] == evil
    assert json.loads(embedded({"a": evil})) == {"a": evil}


def test_the_script_draws_every_kind_of_block() -> None:
    script = Page(written(Document("", "", [], []))).scripts[1]
    drawn = re.search(r"const DRAW = \{(.*?)\}", script)
    assert drawn is not None
    kinds = {kind.kind for kind in Block.__subclasses__()}
    assert {name.strip() for name in drawn.group(1).split(",")} == kinds


def test_nothing_else_is_written_over(eris: Eris, tmp_path: Path) -> None:
    assert eris(*RUN, "--name", "one") == 0
    (tmp_path / "mine.html").write_text("my own page", encoding="utf-8")
    assert "another is not written over" in eris.refused("report", "one", "--out", "mine.html")
    assert (tmp_path / "mine.html").read_text(encoding="utf-8") == "my own page"
    assert eris("report", "one") == 0
    assert eris("report", "one") == 0  # its own, again
    assert ".html" in eris.refused("report", "one", "--out", "page.txt")


def test_bad_input(eris: Eris, tmp_path: Path) -> None:
    assert eris(*RUN, "--name", "one") == 0
    assert "one of the runs" in eris.refused("report", "on")
    (tmp_path / "empty").mkdir()
    assert "a folder of nodes" in eris.refused("report", "empty")
    (tmp_path / "runs/one/audit.json").write_text('{"findings": [{}]}', encoding="utf-8")
    assert "is no audit's" in eris.refused("report", "one")
    (tmp_path / "runs/one/audit.json").unlink()
    rounds = tmp_path / "runs/one/rounds.jsonl"
    rounds.write_bytes(rounds.read_bytes()[:-40])
    assert "bytes" in eris.refused("report", "one")
    record = tmp_path / "runs/one/run.json"
    record.write_text(record.read_text().replace('"format": 1', '"format": 9'), encoding="utf-8")
    assert "which this version reads" in eris.refused("report", "one")


def _journal(folder: Path, name: str) -> Journal:
    place = folder / name / "state"
    place.mkdir(parents=True)
    return Journal(place / "journal.jsonl")


def _of(block: Block, field: str) -> Any:
    return getattr(block, field)
