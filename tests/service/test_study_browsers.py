"""Studies from browsers to the dashboard: words, a panel, a range and a classifier, 200 visitors each.

The visitors are the JavaScript client in a real Chromium, each with storage and a single-use token of its own. What
left their pages is fed through the library as well: the results are equal to the last bit.
"""

from concurrent.futures import ThreadPoolExecutor

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

PEOPLE = 200
# Who is on the way when a stage has its people counts in it, and is missing in the last one.
SPARE = 40
STUDIES = {
    "words": (words, {}),
    "range": (lambda: Range(dim=3, epsilon=6.0), {}),
    "classifier": (classifier, {}),
    # periods of 20 seconds: visitors who draw a later one come again
    "panel": (panel, {"hours": 20 / 3600, "least": 0.01}),
}
# Visitors come ten at a time, as often as they are told, until nothing is left to do.
VISITS = """async ([name, mostEpsilon, visitors]) => {
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
            left.push([number, visitor, Math.min(again, Date.now() + 1000)]);
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
    };
    await Promise.all(Array.from({ length: 10 }, work));
    return [sent, told.length];
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # with the demo, whose folder has the scripts
    limits = {"messages_per_second": 0, "reads_per_second": 0}
    with serving(
        tmp_path_factory.mktemp("server"), environment={"SSTQ_DEMO": "1"}, **limits
    ) as running:
        yield running


def visited(server, name, study):
    """Everybody visits a new study in one page; returns what it sent, and when visitors were to come again."""
    values = values_of(study, PEOPLE + SPARE, np.random.default_rng(1))
    held = [value.tolist() if hasattr(value, "tolist") else value for value in values]
    with browsing() as browser:
        page = browser.new_page()
        page.goto(f"{server.url}/demo/charts.js")  # any page from there
        terms = {"senders": "single-use"} | STUDIES[name][1]
        created = begin(server, name, study, PEOPLE, **terms)
        assert created.status_code == 201, created.text
        made = server.administer(
            "POST", f"/v1/campaigns/{name}/tokens", json={"count": PEOPLE + SPARE}
        )
        visitors = list(zip(held, made.json()["tokens"], strict=True))
        return page.evaluate(VISITS, [name, study.options["epsilon"], visitors])


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


def test_from_browsers_to_the_dashboard_and_the_same_through_the_library(
    server, tmp_path
):
    studies = {name: make() for name, (make, _) in STUDIES.items()}
    with ThreadPoolExecutor(len(studies)) as pool:
        going = {
            name: pool.submit(visited, server, name, study)
            for name, study in studies.items()
        }
        found = {name: each.result() for name, each in going.items()}
    for name, (sent, told) in found.items():
        # Visitors have nothing left to do before the collector has learned from the last of them.
        until(lambda name=name: server.status(name)["status"] == "closed")
        status = server.status(name)
        sizes = [stage["people"] for stage in status["study"]["stages"]]
        messages = by_stage(server, name, len(sizes), sent)
        received = sum(map(len, messages))
        assert (status["study"]["state"], status["received"]) == ("ended", received)
        assert status["tokens_unspent"] == PEOPLE + SPARE - received
        if name != "panel":  # whose periods end by the clock
            assert received >= PEOPLE
        _, expected = through_the_library(studies[name].to_json(), sizes, messages)
        answer = server.administer("GET", f"/v1/campaigns/{name}/estimate").json()
        assert answer["result"] == expected
        assert told > 0  # stages follow each other while visitors wait
    with browsing() as browser:
        for width in (1280, 400):
            for name in STUDIES:
                shown_on_the_dashboard(browser, server, name, width, tmp_path)


def shown_on_the_dashboard(browser, server, name, width, folder):
    """The page of a study has what the collector knows, at this width."""
    context = browser.new_context(viewport={"width": width, "height": 900})
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
    assert facts[:2] == [f"{status['received']} of {PEOPLE}", str(found_people(status))]
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
        shown = [float(row.replace("−", "-")) for row in cells(rows)]
        assert shown == pytest.approx(found["mean"], rel=1e-3)
    for column, value in (("word", "share"), ("class", "accuracy")):
        if column in found:
            names = page.locator("figure tbody th").all_text_contents()
            assert names == [str(each) for each in found[column]]
            shown = [
                float(row.removesuffix(" %").replace("−", "-")) for row in cells(rows)
            ]
            assert shown == pytest.approx(100 * np.array(found[value]), rel=1e-3)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=folder / f"study-{name}-{width}.png", full_page=True)
    assert said == []
    context.close()


def found_people(status):
    return status["covered"]


def cells(rows):
    """The first column of numbers."""
    return [row.locator("td").first.text_content() for row in rows.all()]
