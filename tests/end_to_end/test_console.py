"""The console in a real browser: every page, by mouse and by keys, with nothing in its console.

One server (without Spark: the adapter's own mechanics, rows by DuckDB), one Chromium. Each test
opens pages of its own; the fixture that makes a page also holds it to having logged no error and
to having asked nobody but us.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from headwater.base.clock import SystemClock
from headwater.console.app import application
from headwater.console.sight import Sight
from headwater.server.config import Address
from headwater.server.http import HttpServer, health
from headwater.testing.sql_server import SqlServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DEADLINE_MS = 30_000

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[SqlServer]:
    with SqlServer(SystemClock()) as server:
        run = server.session()
        run("CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, note text)")
        run("CREATE TABLE customers (id bigint PRIMARY KEY, region text)")
        run("COMMENT ON TABLE orders IS 'what was bought'")
        run(
            "CREATE VIEW by_region AS SELECT region, count(*) AS orders FROM orders o "
            "JOIN customers c ON o.customer = c.id GROUP BY region"
        )
        run("INSERT INTO customers VALUES (1, 'north'), (2, 'south')")
        run("INSERT INTO orders VALUES (1, 1, '<b>bold</b>'), (2, 2, NULL)")
        server.timeline.start()
        yield server


@pytest.fixture(scope="module")
def url(server: SqlServer) -> Iterator[str]:
    sight = Sight(server.coordinator.seen, server.coordinator.open_session)
    http = HttpServer(
        Address("127.0.0.1", 0),
        lambda: application(sight, lambda: b"", lambda: health(None, ready=True)),
    )
    http.start()
    yield http.url
    http.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, base_url=url)
    context.set_default_timeout(DEADLINE_MS)
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    asked: set[str] = set()
    opened.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    yield opened
    context.close()
    assert wrong == []
    assert asked <= {urlsplit(url).netloc}, "it works offline"


def test_the_graph_is_live_and_leads_to_objects(page: Any, server: SqlServer) -> None:
    page.goto("/")
    node = page.locator("a.hw-node", has_text="orders").first
    node.wait_for()
    assert page.locator("a.hw-node").count() == 3
    assert page.locator(".hw-graph svg > path").count() == 2
    before = node.inner_text()
    page.wait_for_function(
        "before => document.querySelector('a.hw-node').innerText != before", arg=before
    )
    server.session()("CREATE TABLE later (k bigint)")
    page.locator("a.hw-node", has_text="later").wait_for()
    server.session()("DROP TABLE later")
    page.locator("a.hw-node", has_text="later").wait_for(state="detached")
    page.locator("a.hw-node", has_text="orders").first.click()
    page.wait_for_url("**/object?name=orders")


def test_the_page_of_an_object_shows_what_it_is_and_what_changes(
    page: Any, server: SqlServer
) -> None:
    page.goto("/object?name=orders")
    page.get_by_text("what was bought").wait_for()
    page.get_by_text("CREATE TABLE orders").wait_for()
    page.get_by_role("cell", name="bigint").first.wait_for()
    page.get_by_role("cell", name="<b>bold</b>").wait_for()  # As text: rows are not markup.
    page.get_by_role("cell", name="NULL").first.wait_for()
    page.get_by_role("link", name="by_region").wait_for()
    server.session()("INSERT INTO orders VALUES (77, 1, 'just now')")
    page.get_by_role("cell", name="+1").first.wait_for()
    page.get_by_role("cell", name="just now").first.wait_for()
    server.session()("DELETE FROM orders WHERE id = 77")
    page.get_by_role("cell", name="-1").first.wait_for()
    page.goto("/object?name=by_region")
    page.get_by_text("all 2 rows").wait_for()
    page.goto("/object?name=nobody")
    page.get_by_text('There is no object "nobody"').wait_for()


def _write(page: Any, text: str) -> None:
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def test_sql_by_keys_with_history_errors_and_explain(page: Any) -> None:
    page.goto("/sql")
    page.locator(".cm-content").wait_for()
    _write(page, "SELECT region FROM customers ORDER BY region")
    page.keyboard.press("Control+Enter")
    page.get_by_role("cell", name="north").wait_for()
    _write(page, "SELECT * FROM custmers")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").wait_for()
    assert 'Perhaps you meant "customers"' in page.locator(".hw-main").inner_text()
    page.reload()
    page.get_by_role("button", name="SELECT region FROM customers").click()
    page.wait_for_function("document.querySelector('.cm-content').innerText.includes('region')")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("query timestamp").wait_for()


SLOW_SENDING = """
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (text) { setTimeout(() => send.call(this, text), 700); };
"""


def test_what_is_typed_before_the_server_has_heard_of_it_is_what_runs(page: Any) -> None:
    page.add_init_script(SLOW_SENDING)  # The page is typed in before it is connected.
    page.goto("/sql")
    page.locator(".cm-content").wait_for()
    text = "SELECT region AS typed FROM customers ORDER BY region"
    _write(page, text)
    page.keyboard.press("Control+Enter")
    page.get_by_role("cell", name="north").wait_for()
    assert page.locator(".cm-content").inner_text() == text
    page.get_by_role("button", name=text).wait_for()


def test_the_slider_reads_the_past(page: Any, server: SqlServer) -> None:
    run = server.session()
    run("CREATE TABLE ages (n bigint)")
    time.sleep(0.01)
    run("INSERT INTO ages VALUES (1)")
    page.goto("/sql?text=SELECT%20count(*)%20AS%20counted%20FROM%20ages")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name="1", exact=True).wait_for()
    page.get_by_role("checkbox", name="as of").click()
    page.wait_for_function("!document.querySelector('.q-slider').classList.contains('disabled')")
    page.locator(".q-slider").click(position={"x": 1, "y": 10})
    page.wait_for_function(
        "/\\d{4}-\\d\\d-\\d\\d /.test(document.querySelector('.hw-main').innerText)"
    )
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name="0", exact=True).wait_for()


def test_the_timeline_shows_what_can_be_read(page: Any) -> None:
    page.goto("/timeline")
    page.locator(".hw-bar").first.wait_for()
    tracks = page.get_by_role("img")
    assert re.match(
        r"readable from \S+ to just before \S+", tracks.first.get_attribute("aria-label")
    )
    shown = tracks.count()
    page.get_by_role("checkbox").click()
    page.wait_for_timeout(1500)
    assert tracks.count() >= shown
    page.get_by_role("link", name="orders").click()
    page.wait_for_url("**/object?name=orders")


def test_keys_reach_everything_and_the_palette_is_kept(page: Any) -> None:
    page.goto("/")
    page.locator("a.hw-node").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText").startswith("Skip to")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('hw-node')"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/object?name=*")
    page.locator(".hw-fact").first.wait_for()
    page.keyboard.press("Alt+2")
    page.wait_for_url("**/sql")
    page.locator(".cm-content").click()
    page.keyboard.press("Alt+3")
    page.wait_for_url("**/timeline")
    page.locator(".hw-bar").first.wait_for()
    assert not page.evaluate("document.body.classList.contains('body--dark')")
    page.get_by_role("button", name="Dark or light").click()
    page.wait_for_function("document.body.classList.contains('body--dark')")
    page.wait_for_function("document.cookie.includes('dark')")
    page.goto("/")
    page.wait_for_function("document.body.classList.contains('body--dark')")


def test_a_browser_that_is_gone_holds_nothing(browser: Any, url: str, server: SqlServer) -> None:
    context = browser.new_context(base_url=url)
    opened = context.new_page()
    opened.goto("/object?name=orders")
    opened.locator(".hw-fact").first.wait_for()
    deadline = time.monotonic() + DEADLINE_MS / 1000
    while not server.coordinator.seen().subscriptions and time.monotonic() < deadline:
        time.sleep(0.1)
    assert server.coordinator.seen().subscriptions
    context.close()
    while server.coordinator.seen().subscriptions and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not server.coordinator.seen().subscriptions
