"""The poll of `sstq serve --demo` in a real browser, against a running collector.

The browser is SSTQ_CHROMIUM or the Chromium on the PATH. SSTQ_PICTURES=docs renews the picture of the docs.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import sstq

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

from playwright import sync_api as playwright

from sstq.service import Settings
from sstq.service.collector import Collector
from sstq.service.pages import POLL, WORDS, dashboard_routes, ensure_poll
from sstq.service.security import CONTENT_POLICY
from tests.browsing import CHROMIUM, browsing, quiet_page
from tests.patience import until
from tests.service.serving import ADMINISTRATOR, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="NO BROWSER: the poll is not tested; set SSTQ_CHROMIUM"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, environment={"SSTQ_DEMO": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def operators(server):
    """The path of the poll with the token that the server prints."""
    return server.process.stdout.readline().split()[-1].removeprefix(server.url)


@pytest.fixture(scope="module")
def browser():
    with browsing() as running:
        yield running


@pytest.fixture
def page(browser, server, operators):
    """The poll, opened."""
    with quiet_page(browser, server.url) as opened:
        opened.goto(server.url + operators)
        opened.wait_for_selector("#simulate:enabled")
        yield opened


def answer(page):
    """Answer all questions but one: what is left out is no answer."""
    page.check("input[name=q0][value='by bike']")
    page.check("input[name=q1][value='none of these']")
    page.check("input[name=q1][value='the people']")
    assert not page.is_checked("input[name=q1][value='none of these']")
    page.fill("input[name=q2]", "38")


def an_upload(request):
    return request.method == "POST" and request.url.endswith("/messages")


def counted(page):
    return int("".join(filter(str.isdigit, page.text_content("#count"))) or 0)


@needs_browser
def test_a_visitor_sees_the_bits_that_leave_the_page_and_the_estimate_move(
    page, server, tmp_path
):
    assert page.is_disabled("#send")
    answer(page)
    before = server.status(POLL)["received"]
    with page.expect_request(an_upload) as asked:
        page.click("#send")
    playwright.expect(page.locator("#sent")).to_be_visible()
    body = asked.value.post_data_buffer
    mechanism = sstq.from_json(
        json.dumps(server.http.get(f"/v1/campaigns/{POLL}").json()["mechanism"])
    )
    (sent,), (question,) = mechanism.messages_from_bytes(body, 1).columns
    bits = "".join(page.locator("#bits span").all_text_contents())
    assert bits == f"{sent:020b}{question:02b}"
    assert list(mechanism.questions)[question] in page.text_content("#fields")
    playwright.expect(page.locator("#thanks")).to_have_text("Sent, thank you.")
    shown = page.text_content("#request")
    assert shown.splitlines()[-1].startswith(body.hex(" "))
    for name in ("Idempotency-Key", "SSTQ-Digest", "SSTQ-Count"):
        assert f"{name}: {asked.value.headers[name.lower()]}" in shown
    assert "cookie" not in asked.value.headers
    assert page.locator("#others li").count() == 12
    server.wait(POLL, before + 1)
    for _ in range(2):
        with page.expect_request(an_upload) as batch:
            page.click("#simulate:enabled")
        assert batch.value.headers["sstq-count"] == "1000"
        page.wait_for_selector("#simulate:enabled")
    server.wait(POLL, before + 2001)
    # Visitors see the estimate in steps of 2 %.
    estimate = server.http.get(f"/v1/campaigns/{POLL}/estimate").json()
    assert 0.98 * (before + 2001) < estimate["count"] <= before + 2001
    playwright.expect(page.locator("#count")).to_contain_text(
        f"{estimate['count']:,} private"
    )
    page.click("summary")
    rows = [
        row.locator("td").all_text_contents()
        for row in page.locator("#chart tbody tr").all()
    ]
    found = [
        item
        for each in estimate["questions"]
        for item in zip(each["estimate"], each["low"], each["high"], strict=True)
    ]
    assert [row[0] for row in rows] == [f"{100 * share:.0f} %" for share, _, _ in found]
    assert [row[1] for row in rows] == [
        f"{100 * low:.0f} % to {100 * high:.0f} %" for _, low, high in found
    ]
    assert page.locator("#chart svg path.truth").count() == len(found) == 5 + 4 + 12 + 5
    # Grey until the interval is above zero, and not for ever.
    pale = [not low > 0 for _, low, _ in found]
    shown = page.eval_on_selector_all(
        "#chart rect.bar", "all => all.map((one) => one.classList.contains('pale'))"
    )
    assert shown == pale
    assert not all(pale)
    page.click("summary")
    whiskers = "(document.querySelector('#whatif .error').getAttribute('d'))"
    widths = []
    for epsilon in ("1", "4"):
        page.fill("#epsilon", epsilon)
        low, high = map(
            float, re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", page.evaluate(whiskers))[0]
        )
        widths.append(high - low)
        assert f"ε = {epsilon} in all per person" in page.text_content("#whatif-text")
    assert widths[1] < widths[0]
    page.fill("#epsilon", "2")
    folder = Path(os.environ.get("SSTQ_PICTURES", tmp_path))
    page.screenshot(path=folder / "browser-poll.png", full_page=True)
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("#look")
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(18, 22, 29)"
    )


@needs_browser
def test_the_ledger_outlives_the_page_and_lets_nobody_answer_three_times(page, server):
    for spent in (2, 4):
        page.reload()
        page.wait_for_selector("#simulate:enabled")
        answer(page)
        page.click("#send")
        if spent == 4:  # the page asks before it spends ε again
            playwright.expect(page.locator("#again-text")).to_contain_text(
                "spends ε = 2 more, 4 in all"
            )
            before = server.status(POLL)["received"]
            page.click("text=Do not send")
            playwright.expect(page.locator("#send")).to_be_enabled()
            assert server.status(POLL)["received"] == before
            page.click("#send")
            page.click("text=Send again")
        playwright.expect(page.locator("#budget")).to_contain_text(
            f"ε = {spent} of 4 spent"
        )
    before = server.status(POLL)["received"]
    page.reload()
    page.wait_for_selector("#simulate:enabled")
    answer(page)
    assert page.is_disabled("#send")
    refused = page.evaluate(
        """async () => {
            const { Client, Ledger } = await import("./sstq.js");
            const ledger = await Ledger.open("demo-poll", { epsilon: 4 });
            const client = await Client.open(new URL("../demo-poll", location).href, { mostEpsilon: 2, ledger });
            return client.send({}).catch((error) => [error.code, error.message]);
        }"""
    )
    assert refused == ["ledger", "epsilon = 2 is more than is left: 0 of 4"]
    assert server.status(POLL)["received"] == before


@needs_browser
def test_pages_that_race_for_the_last_budget_spend_it_once(page):
    spent = page.evaluate(
        """async () => {
            const { Ledger } = await import("./sstq.js");
            const open = () => Ledger.open("race", { epsilon: 3, cap: 1 });
            const ledgers = await Promise.all(Array.from({ length: 8 }, open));
            const tried = await Promise.allSettled(ledgers.map((ledger, i) => ledger.spend(1, `message ${i}`)));
            return [tried.filter(({ status }) => status === "fulfilled").length, await ledgers[0].spent()];
        }"""
    )
    assert spent == [3, 3]


@needs_browser
def test_the_second_tab_asks_for_a_word_once_and_shows_the_words_that_were_found(
    page, server, tmp_path
):
    page.click("text=A word")
    page.wait_for_selector("#simulate:enabled")

    def first_stage():
        return server.status(WORDS)["study"]["stages"][0]

    # Not once more: on a busy machine that would come to the second stage.
    while (stage := first_stage())["received"] < stage["people"]:
        page.click("#simulate:enabled")
        page.wait_for_selector("#simulate:enabled")
    until(lambda: first_stage()["state"] == "learned")
    playwright.expect(page.locator("#count")).to_contain_text("Words from 3,948 people")
    words = page.locator("#chart tbody th").all_text_contents()
    estimate = server.http.get(f"/v1/campaigns/{WORDS}/estimate").json()
    assert words == estimate["result"]["word"]
    # Three letters and whole: one of four holds it, so it is missed in far less than one of a million runs.
    assert "tea" in words
    # The stage that follows is shown when the page asks again.
    playwright.expect(page.locator("#stages progress")).to_have_count(4)
    assert page.is_disabled("#send")
    page.fill("#word", "  Espresso ")
    with page.expect_request(an_upload) as asked:
        page.click("#send")
    playwright.expect(page.locator("#told")).to_contain_text("nobody is asked twice")
    body = asked.value.post_data_buffer
    assert page.text_content("#request").splitlines()[-1].startswith(body.hex(" "))
    assert "letters 1 to 5" in page.text_content("#sent-text")
    before = server.status(WORDS)["received"]
    page.click("#simulate:enabled")
    server.wait(WORDS, before + 1000, "received")
    playwright.expect(page.locator("#stages li").nth(1)).to_contain_text("1,0")
    folder = Path(os.environ.get("SSTQ_PICTURES", tmp_path))
    page.screenshot(path=folder / "browser-word.png", full_page=True)
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Nobody answers twice, also after the page was loaded again.
    page.reload()
    playwright.expect(page.locator("#told")).to_contain_text("nobody is asked twice")
    page.fill("#word", "tea")
    assert page.is_disabled("#send")


@needs_browser
def test_a_changed_campaign_is_refused_and_said(browser, server):
    page = browser.new_page()

    def change(route):
        answered = route.fetch()
        route.fulfill(
            response=answered, body=answered.text().replace('"high":60', '"high":61')
        )

    page.route(f"**/v1/campaigns/{POLL}", change)
    page.goto(f"{server.url}/demo/")
    playwright.expect(page.locator("#problem")).to_contain_text(
        "somebody changed it on the way"
    )
    assert page.is_disabled("#send")
    page.close()


@needs_browser
def test_a_collector_that_is_gone_or_refuses_is_said(browser, server, operators):
    page = browser.new_page()
    page.goto(server.url + operators)
    playwright.expect(page.locator("#missing")).to_have_text(
        "Answer at least one question first."
    )
    closed = {"status": 410, "detail": "the campaign closed"}
    answers = {
        "none": lambda route: route.abort(),
        "closed": lambda route: route.fulfill(status=410, json=closed),
        "server": lambda route: route.continue_(),
    }
    answering = "none"
    # One route for all: the page tries again while the answers change, and a route must not go while it is asked.
    page.route("**/messages", lambda route: answers[answering](route))
    page.click("#simulate")
    host = server.url.removeprefix("http://")
    playwright.expect(page.locator("#problem")).to_contain_text(
        f"There is no answer from {host}"
    )
    playwright.expect(page.locator("#problem")).to_contain_text("Next try in")
    answering = "closed"
    text = f"{host} refused the request (410): the campaign closed"
    playwright.expect(page.locator("#problem")).to_contain_text(text)
    answering = "server"
    page.click("#simulate")
    playwright.expect(page.locator("#problem")).to_be_hidden()
    playwright.expect(page.locator("#count")).to_contain_text("private")
    page.close()


@needs_browser
def test_strangers_have_no_simulated_visitors(browser, server):
    page = browser.new_page()
    page.goto(f"{server.url}/demo")  # without its last character as well
    playwright.expect(page.locator("#missing")).to_have_text(
        "Answer at least one question first."
    )
    assert not page.is_visible("#simulate")
    assert server.http.get("/demo/sender.json").status_code == 404
    page.close()


def test_the_page_is_served_from_the_checkout_under_the_policy_of_the_dashboard(server):
    page = server.http.get("/demo/")
    assert page.headers["content-security-policy"] == CONTENT_POLICY
    assert page.content == (ROOT / "examples" / "browser" / "index.html").read_bytes()
    assert (
        server.http.get("/demo/sstq.js").content
        == (ROOT / "clients" / "js" / "sstq.js").read_bytes()
    )
    assert server.http.get("/demo/missing.js").status_code == 404
    assert not any(route.path.startswith("/demo") for route in dashboard_routes())


def test_a_poll_that_is_there_stays_as_it_is(tmp_path):
    collector = Collector(
        Settings(f"sqlite:///{tmp_path}/collector.sqlite3", ADMINISTRATOR)
    )
    ensure_poll(collector)
    entry = collector.entries[POLL]
    collector.save(replace(entry.campaign, most_messages=2), entry.own, entry)
    words = collector.entries[WORDS].document
    ensure_poll(collector)
    assert {*collector.entries} == {POLL, WORDS, f"{WORDS}--1"}
    assert collector.entries[WORDS].document == words
    entry = collector.entries[POLL]
    assert entry.campaign.most_messages == 2
    assert (entry.campaign.name, entry.campaign.senders, entry.campaign.readers) == (
        POLL,
        "everybody",
        "public",
    )
    collector.store.close()
