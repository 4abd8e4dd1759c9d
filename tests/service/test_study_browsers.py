"""Studies from browsers to the dashboard: words, a panel, a range and a classifier; with 200 people in `make soak`.

The visitors are the JavaScript client in a real Chromium, each with storage and a single-use token of its own. What
left their pages is fed through the library as well: the results are equal to the last bit.
"""

import math

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

from playwright import sync_api as playwright

from sstq.client.campaigns import read_document
from sstq.messages.batch import Messages
from sstq.studies import Range
from tests.browsing import CHROMIUM, HASTY, browsing
from tests.patience import until
from tests.service.serving import ADMINISTRATOR, serving
from tests.service.studying import (
    begin,
    classifier,
    panel,
    through_the_library,
    values_of,
    words,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="NO BROWSER: set SSTQ_CHROMIUM or install chromium"
    ),
]

# How many visitors come at a time. All but one of them may be on the way when a stage has its people: they count in it,
# and would be missing in the last one, which is the sixth at most.
TOGETHER = 4
SPARE = 5 * (TOGETHER - 1)
STUDIES = {
    "words": (words, {}),
    # the first of its cohorts are three or four people
    "range": (lambda: Range(dim=3, epsilon=16.0), {}),
    "classifier": (classifier, {}),
    # periods of 8 seconds: visitors who draw a later one come again
    "panel": (panel, {"hours": 8 / 3600, "least": 0.01}),
}
# Visitors come until nothing is left to do: when they are told or, to a study whose stages end with their people, again
# and again, before anybody else.
VISITS = """([name, mostEpsilon, visitors, together, isTimed]) => { window.visits = (async () => {
    const { Client, Outbox } = await import("./sstq.js");
    const url = new URL(`../${name}`, location).href, left = [...visitors.entries()], sent = [], told = [], ask = fetch;
    window.fetch = async (url, options) => {
        const answer = await ask(url, options);
        if (options.method === "POST" && answer.status === 200)
            sent.push([new URL(url).pathname.split("/").at(-2), options.headers["Idempotency-Key"], [...options.body]]);
        return answer;
    };
    const visit = async (number, [value, token]) => {
        const outbox = await Outbox.open(`${name} ${number}`);
        const client = await Client.open(url, { mostEpsilon, token, outbox });
        try {
            return await client.takePart(value);
        } catch (error) {
            if (error.status !== 410) throw error; // on its way when its period ended: spent, and not counted
            return null;
        }
    };
    const work = async () => {
        while (left.length) {
            const [number, visitor, due = 0] = left.shift();
            const again = Date.now() < due ? due : await visit(number, visitor);
            if (again === null) continue;
            if (again > due) told.push(again);
            if (isTimed) left.push([number, visitor, again]);
            else left.unshift([number, visitor]);
            await new Promise((resolve) => setTimeout(resolve, isTimed ? 50 : 500));
        }
    };
    await Promise.all(Array.from({ length: together }, work));
    return [sent, told.length];
})(); }"""


@pytest.fixture
def server(tmp_path_factory):
    # with the demo, whose folder has the scripts
    limits = {"messages_per_second": 0, "reads_per_second": 0}
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, environment={"SSTQ_DEMO": "1"}, **limits) as running:
        yield running


@pytest.fixture
def browser():
    with browsing() as running:
        yield running


def visit(server, browser, name, study, people):
    """Everybody begins to visit a new study in one page, which is returned."""
    values = values_of(study, people + SPARE, np.random.default_rng(1))
    held = [value.tolist() if hasattr(value, "tolist") else value for value in values]
    page = browser.new_page()
    page.goto(f"{server.url}/demo/charts.js")  # any page from there
    terms = STUDIES[name][1]
    created = begin(server, name, study, people, senders="single-use", **terms)
    assert created.status_code == 201, created.text
    made = server.administer(
        "POST", f"/v1/campaigns/{name}/tokens", json={"count": people + SPARE}
    )
    visitors = list(zip(held, made.json()["tokens"], strict=True))
    told = [name, study.options["epsilon"], visitors, TOGETHER, "hours" in terms]
    page.evaluate(VISITS, told)
    return page


def by_stage(server, name, stages, sent):
    """The messages of each stage, once each."""
    bodies = {f"{name}--{number}": {} for number in range(1, stages + 1)}
    for stage, key, body in sent:
        bodies[stage][key] = bytes(body)
    found = []
    for stage, own in bodies.items():
        raw = server.http.get(f"/v1/campaigns/{stage}").content
        mechanism = read_document(raw).campaign.mechanism
        nobody = mechanism.messages_from_bytes(b"", 0)
        each = [mechanism.messages_from_bytes(body, 1) for body in own.values()]
        found.append(Messages.concatenate([nobody, *each]))
    return found


@pytest.mark.parametrize("people", [64, pytest.param(200, marks=pytest.mark.soak)])
def test_from_browsers_to_the_dashboard_and_the_same_through_the_library(
    server, browser, tmp_path, people
):
    studies = {name: make() for name, (make, _) in STUDIES.items()}
    pages = {
        name: visit(server, browser, name, study, people)
        for name, study in studies.items()
    }
    for name, page in pages.items():
        # What it sent, and how often visitors were to come again.
        sent, told = page.evaluate("window.visits")
        page.close()
        # Visitors have nothing left to do before the collector has learned from the last of them.
        until(lambda name=name: server.status(name)["status"] == "closed")
        status = server.status(name)
        sizes = [stage["people"] for stage in status["study"]["stages"]]
        messages = by_stage(server, name, len(sizes), sent)
        received = sum(map(len, messages))
        assert (status["study"]["state"], status["received"]) == ("ended", received)
        assert status["tokens_unspent"] == people + SPARE - received
        if name != "panel":  # whose periods end by the clock
            assert received >= people
        _, expected = through_the_library(studies[name].to_json(), sizes, messages)
        answer = server.administer("GET", f"/v1/campaigns/{name}/estimate").json()
        assert answer["result"] == expected
        assert told > 0  # stages follow each other while visitors wait
    for name in STUDIES:
        shown_on_the_dashboard(browser, server, name, people, tmp_path)


def shown_on_the_dashboard(browser, server, name, people, folder):
    """The page of a study has what the collector knows, and fits on narrow and wide screens."""
    context = browser.new_context(viewport={"width": 400, "height": 900})
    page = context.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.add_init_script(HASTY)
    page.add_init_script(f"sessionStorage.setItem('sstq-token', '{ADMINISTRATOR}')")
    page.goto(f"{server.url}/{name}")
    playwright.expect(page.locator("#state")).to_have_text("■ ended")
    status = server.status(name)
    found = server.administer("GET", f"/v1/campaigns/{name}/estimate").json()["result"]
    stages = page.locator("#stages li")
    playwright.expect(stages).to_have_count(len(status["study"]["stages"]))
    assert "learned" in stages.last.text_content()
    facts = page.locator("#facts dd").all_text_contents()
    assert facts[:2] == [f"{status['received']} of {people}", str(found_people(status))]
    rows = page.locator("figure tbody tr")
    columns = [column for column in ("word", "class", "mean") if column in found]
    if columns:
        playwright.expect(rows).to_have_count(len(found[columns[0]]))
    else:
        for curve in found["curves"]:
            place = page.locator(f"figure:has(figcaption:text-is('{curve['item']}'))")
            playwright.expect(place.locator("tbody tr")).to_have_count(3)
            if curve["changed"]:
                assert curve["changed"] in place.locator(".text").text_content()
    if "mean" in found:
        shown = [number(row) for row in cells(rows)]
        assert shown == pytest.approx(found["mean"], rel=1e-3)
    for column, value in (("word", "share"), ("class", "accuracy")):
        if column in found:
            names = page.locator("figure tbody th").all_text_contents()
            assert names == [str(each) for each in found[column]]
            shown = [number(row.removesuffix(" %")) for row in cells(rows)]
            # Few people may tell nothing of a class.
            known = 100 * np.array(found[value], dtype=float)
            assert shown == pytest.approx(known, rel=1e-3, nan_ok=True)
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=folder / f"study-{name}.png", full_page=True)
    assert said == []
    context.close()


def found_people(status):
    return status["covered"]


def number(shown):
    """A number as the dashboard writes it, which shows a dash for one that is not known."""
    if shown == "–":
        return math.nan
    return float(shown.replace("−", "-").replace(",", ""))


def cells(rows):
    """The first column of numbers."""
    return [row.locator("td").first.text_content() for row in rows.all()]
