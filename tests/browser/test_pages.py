"""Pages in a real browser: they draw, move, and can be used by keyboard, narrow and in the dark.

Headless Chromium, as Debian has it (`make test-browser`). Screenshots are kept in runs/screenshots.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, CDPSession, Page, expect, sync_playwright

from eris.experiments.federations.processes import QUICK, LocalFederation, free_ports
from eris.runtimes.grpc.observe import NodeState
from eris.web.places import Places
from support.command import eris
from support.dashboards import served

pytestmark = pytest.mark.slow
SHOTS = Path(__file__).parents[2] / "runs" / "screenshots"
PATIENCE = 240_000
"""Milliseconds, for machines that do other things as well."""
CHROMIUM = "/usr/bin/chromium"
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--no-sandbox")  # fmt: skip
SOME, FIVE = re.compile("[0-9]+"), re.compile("[5-9]|[1-9][0-9]+")
RUN = ("run", "--data", "digits", "--clients", "6", "--samples", "16", "--evaluate-every", "2",
       "--set", "aggregators=3")  # fmt: skip


@pytest.fixture(scope="module")
def browsing() -> Iterator[BrowserContext]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser.new_context(accept_downloads=True)
        browser.close()


@pytest.fixture
def page(browsing: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page on which nothing goes wrong, and that asks nobody but this machine."""
    page, wrong, asked = browsing.new_page(), [], []
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: asked.append(one.url))
    yield page
    if page.url.startswith("file:"):
        keep(page, request.node.name)
    page.close()
    assert not wrong
    others = [
        url for url in asked if not url.startswith(("http://127.0.0.1", "file:", "data:", "blob:"))
    ]
    assert not others


def keep(page: Page, name: str) -> None:
    """A screenshot."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


@contextmanager
def dashboard(page: Page, places: Places, path: str, name: str) -> Iterator[None]:
    """A dashboard that the page is on; who leaves it first is the page."""
    with served(places) as port:
        page.goto(f"http://127.0.0.1:{port}{path}")
        try:
            yield
        finally:
            keep(page, name)
            page.goto("about:blank")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for name, more in (("one", ["--record", "--canaries", "0.5"]), ("two", ["--seed", "1"])):
        made = eris(*RUN, "--rounds", "6", "--name", name, *more, cwd=folder)
        assert made.returncode == 0, made.stderr
    assert eris("audit", "one", cwd=folder).returncode == 0
    return folder / "runs"


def test_a_report_is_drawn_and_its_plots_can_be_saved(
    page: Page, runs: Path, tmp_path: Path
) -> None:
    assert eris("report", "one", cwd=runs.parent).returncode == 0
    page.goto((runs / "one" / "report.html").as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("one")
    assert page.locator("svg path.line").count() >= 5
    assert page.locator("svg rect.fill").count() > 10
    for label, begins in (("CSV", b"series,round,accuracy"), ("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as saving:
            page.get_by_role("button", name=f"Save accuracy as {label}", exact=True).click()
        target = tmp_path / saving.value.suggested_filename
        saving.value.save_as(target)
        assert target.read_bytes().startswith(begins)


def test_a_report_of_an_audit_shows_observers_and_pictures(page: Page, runs: Path) -> None:
    assert eris("report", "one", cwd=runs.parent).returncode == 0
    page.goto((runs / "one" / "report.html").as_uri())
    block = page.locator("article", has=page.get_by_role("heading", name="How well each observer"))
    drawn = block.locator("circle.fill")
    assert drawn.count() >= 4
    drawn.first.focus()
    expect(page.locator(".tip")).to_contain_text("aggregator 0: 0.")
    pictures = page.locator(".images img")
    assert pictures.count() >= 2
    for number in range(pictures.count()):
        assert pictures.nth(number).evaluate("image => image.complete && image.naturalWidth") > 100


def test_a_line_is_switched_off_by_its_name(page: Page, runs: Path) -> None:
    assert eris("report", "one", "two", cwd=runs.parent).returncode == 0
    page.goto((runs / "one-two.html").as_uri())
    block = page.locator("article", has=page.get_by_role("heading", name="accuracy over rounds"))
    assert block.locator("path.line").count() == 2
    block.get_by_role("button", name="two").click()
    assert block.locator("path.line").count() == 1
    expect(block.get_by_role("button", name="two")).to_have_attribute("aria-pressed", "false")


def test_a_run_is_watched_while_it_goes_on(page: Page, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with dashboard(page, Places(tmp_path / "runs"), "/", "a run watched"):
        expect(page.get_by_text("No runs yet")).to_be_visible()
        command = [
            str(Path(sys.executable).parent / "eris"),
            *RUN,
            "--rounds",
            "40",
            "--name",
            "moving",
        ]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            link = page.get_by_role("link", name="moving")
            expect(link).to_be_visible(timeout=PATIENCE)
            link.click()
            expect(page.get_by_text("of 40 rounds")).to_be_visible(timeout=PATIENCE)
            expect(page.locator("body")).to_have_attribute("data-updates", SOME, timeout=PATIENCE)
            expect(page.get_by_text("finished, 40 of 40 rounds")).to_be_visible(timeout=PATIENCE)
            assert process.wait() == 0


def test_nodes_at_work_and_one_that_is_killed(page: Page, tmp_path: Path) -> None:
    """Four node processes; the page shows them train, one killed, and its shard moved on."""
    names = [f"node-{number}" for number in range(4)]
    places = dict(zip(names, free_ports(4), strict=True))
    values = {
        **QUICK,
        "federation.rounds": 100_000,
        "federation.secure_sums": "none",
        "training.trainer": "eris.testing.quadratic:Quadratic",
        "training.options": {"n": 40, "pace": 0.3},
    }
    own = {name: {"observe.http": f"127.0.0.1:{port}"} for name, port in places.items()}
    watched = Places(tmp_path, [f":{port}" for port in places.values()])
    with LocalFederation(tmp_path / "nodes", names, values, own) as federation:
        for name in names:
            federation.start(name)
        with dashboard(page, watched, "/nodes", "a node killed"):
            expect(page.get_by_text("4 of 4")).to_be_visible(timeout=PATIENCE)
            expect(page.locator("path.arc:not(.waits)")).to_have_count(4, timeout=PATIENCE)
            centre = page.locator("text.centre")
            first = centre.text_content()
            assert first is not None
            expect(centre).not_to_have_text(first, timeout=PATIENCE)
            expect(page.get_by_role("heading", name="loss", exact=True)).to_be_visible()
            expect(page.get_by_role("columnheader", name="round")).to_have_class("number")
            federation.kill("node-2")
            expect(page.get_by_text("3 of 4")).to_be_visible(timeout=PATIENCE)
            expect(page.get_by_role("alert").filter(has_text="node-2")).to_be_visible()
            expect(page.locator("circle.ill")).to_have_count(1)
            expect(centre).to_have_text(re.compile("epoch [2-9]"), timeout=PATIENCE)


def test_by_keyboard_alone(page: Page, runs: Path) -> None:
    """From the list to a run, on to a comparison, and a line of it switched off."""

    def tab_to(words: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(":focus").text_content() == words:
                return
        raise AssertionError(f"{words} is not reached")

    with dashboard(page, Places(runs), "/", "by keyboard"):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        for words, heading in (("one", "one"), ("Compare", "one"), ("beside two", "one and two")):
            tab_to(words)
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        tab_to("two")
        page.keyboard.press("Space")
        expect(page.locator('button[aria-pressed="false"]')).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_and_in_the_dark(page: Page, runs: Path, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 360, "height": 740})
    with dashboard(page, Places(runs), "/runs/one", f"narrow, {scheme}"):
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in back[4:-1].split(",")) < 200) == (scheme == "dark")


def test_two_hundred_nodes(page: Page, tmp_path: Path) -> None:
    asked = {f"node-{i}:1": f"node-{i}" for i in range(200)}
    places = Places(tmp_path, list(asked))
    began = time.monotonic()

    def ask(address: str) -> dict[str, object]:
        round = int(10 * (time.monotonic() - began))
        return _state(asked[address], round, owners=list(asked.values())[:50])

    assert places._nodes is not None
    places._nodes._ask = ask
    with dashboard(page, places, "/nodes", "two hundred nodes"):
        expect(page.locator("body")).to_have_attribute("data-updates", FIVE, timeout=PATIENCE)
        assert page.locator("svg circle.fill").count() >= 200
        slowest = page.evaluate("Number(document.body.dataset.slowest)")
        measured = page.context.new_cdp_session(page)
        measured.send("Performance.enable", {"timeDomain": "threadTicks"})
        before, first = _spent(measured), _updates(page)
        expect(page.locator("body")).to_have_attribute(
            "data-updates", re.compile("[2-9][0-9]"), timeout=PATIENCE
        )
        spent, updates = _spent(measured) - before, _updates(page) - first
        each = 1000 * spent / updates
        print(f"200 nodes: slowest of {first} updates {slowest} ms; CPU {each:.0f} ms an update")


def _updates(page: Page) -> int:
    return int(page.evaluate("document.body.dataset.updates"))


def _spent(measured: CDPSession) -> float:
    """CPU seconds of scripts, styles and layout."""
    found = {m["name"]: m["value"] for m in measured.send("Performance.getMetrics")["metrics"]}
    return float(sum(found[f"{work}Duration"] for work in ("Script", "RecalcStyle", "Layout")))


def test_a_large_run_opens(page: Page, tmp_path: Path) -> None:
    made = eris("run", "--data", "digits", "--clients", "50", "--samples", "8", "--rounds", "200",
                "--set", "aggregators=10", "--evaluate-every", "1", "--record", "--name", "large",
                cwd=tmp_path)  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert eris("report", "large", cwd=tmp_path).returncode == 0
    path = tmp_path / "runs" / "large" / "report.html"
    assert path.stat().st_size < 5_000_000
    began = time.monotonic()
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", name="Settings and provenance")).to_be_visible()
    taken, size = time.monotonic() - began, path.stat().st_size
    print(f"50 clients, 200 rounds: {size:,} bytes, open in {taken:.2f} s")


def _state(name: str, round: int, owners: list[str]) -> dict[str, object]:
    state = NodeState(name=name, phase="training", ready=True, round=round, epoch=1,
                      members=len(owners), bytes_sent={"x": 1000 * round},
                      evaluated={"accuracy": round / (round + 9)})  # fmt: skip
    return state.mapping() | {"owners": owners, "rounds": 100}
