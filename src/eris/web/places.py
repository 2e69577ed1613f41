"""The pages of a dashboard: all runs, each run, federations on this disk, and nodes at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

from eris.core.errors import ErisError, InvalidSetting
from eris.experiments.figures import NOTHING
from eris.experiments.runs.progress import described, size
from eris.experiments.runs.report import Summary
from eris.experiments.runs.store import Run, all_runs, find
from eris.web.blocks import Document, Listing, Section, Way
from eris.web.federation import JOURNAL, StoredFederation
from eris.web.nodes import WatchedNodes
from eris.web.runs import of_runs

FRESH = 0.8
"""Seconds for which a document is not made again, however many look at it."""
MOST_OTHERS = 20
"""Runs that a page offers to be compared with, the newest."""
HOME = Way("All runs", "/")


class Places:
    """What a dashboard can show, by the path of its page."""

    def __init__(self, root: Path, addresses: Sequence[str] = ()) -> None:
        self.root = root
        self._nodes = WatchedNodes(addresses) if addresses else None
        self._made: dict[str, tuple[float, Document]] = {}
        self._lock = threading.Lock()

    def document(self, path: str) -> Document:
        """The page at a path; an :class:`ErisError` where there is none, or it cannot be read."""
        with self._lock:  # files are read by one at a time, for all who look
            made = self._made.get(path)
            if made is not None and time.monotonic() - made[0] < FRESH:
                return made[1]
            document = self._maker(path)()
            links = () if path == "/" else (HOME,)
            found = replace(document, links=(*links, *self._ways(path)))
            self._made = {p: m for p, m in self._made.items() if time.monotonic() - m[0] < FRESH}
            self._made[path] = time.monotonic(), found
            return found

    def _maker(self, path: str) -> Callable[[], Document]:
        if path == "/":
            return self._index
        if path == "/nodes" and self._nodes is not None:
            return self._nodes.document
        kind, _, rest = path.lstrip("/").partition("/")
        names = [unquote(name) for name in rest.split("+")]
        # A name is that of a folder in the root, and leads nowhere else.
        if all(name and name not in (".", "..") and "/" not in name for name in names):
            if kind == "runs":
                return lambda: self._runs(names)
            if kind == "federations" and len(names) == 1:
                return lambda: StoredFederation.at(self.root / names[0]).document()
        raise InvalidSetting("page", path, "/, /runs/NAME, /runs/ONE+OTHER or /federations/NAME")

    def _runs(self, names: Sequence[str]) -> Document:
        found = of_runs([find(name, self.root) for name in names])
        others = [run for run in all_runs(self.root) if isinstance(run, Run)]
        others = sorted((run for run in others if run.name not in names),
                        key=lambda run: str(run.about["started"]), reverse=True)  # fmt: skip
        if not others:
            return found
        rows = [
            (Way(f"beside {run.name}", f"/runs/{'+'.join(map(quote, [*names, run.name]))}"),
             run.about["started"])
            for run in others[:MOST_OTHERS]
        ]  # fmt: skip
        listing = Listing("Beside another run", columns=("compare", "started"), rows=rows)
        return replace(found, sections=[*found.sections, Section("Compare", [listing])])

    def _ways(self, path: str) -> list[Way]:
        return [Way("Nodes", "/nodes")] if self._nodes is not None and path != "/nodes" else []

    def _index(self) -> Document:
        rows, alerts, going = [], [], 0
        for run in all_runs(self.root):
            try:
                if not isinstance(run, Run):
                    raise run
                one = Summary.of(run)
            except ErisError as unreadable:
                alerts.append(f"not readable: {unreadable}")
                continue
            going += one.state == "running"
            rows.append((Way(one.name, f"/runs/{quote(one.name)}"), one.state, one.method,
                         one.data, f"{one.done}/{one.asked}", described(one.metrics) or NOTHING,
                         size(one.sent), one.started))  # fmt: skip
        rows.sort(key=lambda row: row[-1], reverse=True)
        columns = ("run", "state", "method", "data", "rounds", "last evaluation",
                   "up, a client and round", "started")  # fmt: skip
        sections = [Section("Runs", [Listing("Runs", columns=columns, rows=rows)])]
        folders = sorted(
            {path.parents[2] for path in self.root.glob(f"*/*/{JOURNAL}")}, key=lambda p: p.name
        )
        if folders:
            found = [(Way(path.name, f"/federations/{quote(path.name)}"),) for path in folders]
            listing = Listing("Federations on this disk", columns=("folder",), rows=found)
            sections.append(Section("Federations", [listing]))
        note = "" if rows else "No runs yet; `eris run --help` says how to make one."
        sections[0] = replace(sections[0], note=note)
        facts = [("runs", str(len(rows))), ("in progress", str(going))]
        return Document("Runs", f"in {self.root}", facts, sections, alerts)
