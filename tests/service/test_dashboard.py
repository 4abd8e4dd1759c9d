"""The dashboard in a real browser: it follows an estimate, shows every shape, and breaks no rule of its policy.

The browser is SSTQ_CHROMIUM or the Chromium on the PATH. SSTQ_PICTURES=docs renews the pictures of the docs.
"""

import csv
import hashlib
import json
import os
import re
import secrets
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

from playwright import sync_api as playwright

from sstq.accounting import shuffled_epsilon
from sstq.audit import verify
from sstq.client.campaigns import read_document
from sstq.client.sealing import envelope_info, payloads, seal
from sstq.client.signing import SigningKey
from sstq.service.batches import Manifest
from sstq.service.security import CONTENT_POLICY
from tests.browsing import CHROMIUM, HASTY, browsing, quiet_page
from tests.patience import until
from tests.service.serving import ADMINISTRATOR, serving
from tests.service.studying import begin, panel, words

pytestmark = pytest.mark.slow

needs_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: the dashboard is not tested; install chromium or set SSTQ_CHROMIUM",
)
COLOURS = "Chart.getChart(document.querySelector('#estimate-figures canvas')).data.datasets[0].backgroundColor"
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
SLEEP = sstq.FrameUnit(dim=7, epsilon=4.0, frames=16384)
SMALL = sstq.FrameUnit(dim=6, epsilon=4.0)
LONG = [
    f"A statement number {number} that is far too long for the space beside a bar"
    for number in range(6)
]
TRAVEL = sstq.GroupUnit(dim=3, epsilon=5.0, groups=4, frames=1024)
RING = sstq.FrameUnit(dim=256, epsilon=6.0, frames=4096)


def send(server, name, mechanism, X, groups=None):
    for start in range(0, len(X), 10_000):
        part = slice(start, start + 10_000)
        chosen = {} if groups is None else {"groups": groups[part]}
        body = mechanism.encode(X[part], **chosen).to_bytes()
        assert server.send(name, mechanism, body, len(X[part])).status_code == 200


def sleep(count, seed):
    mean = np.array([0.30, 0.30, 0.28, 0.30, 0.35, 0.50, 0.45])
    return np.random.default_rng(seed).normal(mean, 0.08, (count, 7))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), messages_per_second=0) as running:
        running.create("hours-of-sleep", SLEEP, labels=DAYS, readers="public")
        groups = ["under 30", "30 to 60", "over 60", "unborn"]
        running.create(
            "travel",
            TRAVEL,
            labels=["walk", "cycle", "bus"],
            group_labels=groups,
            readers="public",
        )
        running.create("ring", RING, image_shape=[16, 16])
        # An estimate at each of these sizes, so that there is a history.
        for seed, count in enumerate([300, 700, 2000]):
            send(running, "hours-of-sleep", SLEEP, sleep(count, seed))
            running.wait("hours-of-sleep", [300, 1000, 3000][seed])
        rng = np.random.default_rng(7)
        group = rng.choice(3, 10_000, p=[0.2, 0.5, 0.3])
        means = np.array([[0.5, 0.6, 0.3], [0.3, 0.4, 0.5], [0.7, 0.1, 0.6]])
        send(running, "travel", TRAVEL, rng.normal(means[group], 0.05), group)
        y, x = np.mgrid[:16, :16] - 7.5
        ring = np.exp(-((np.hypot(x, y) - 4.5) ** 2) / 2).ravel()
        send(running, "ring", RING, np.tile(ring / np.linalg.norm(ring), (10_000, 1)))
        running.wait("travel", 10_000)
        running.wait("ring", 10_000)
        yield running


@pytest.fixture(scope="module")
def browser():
    with browsing() as running:
        yield running


@pytest.fixture
def page(browser, server):
    with quiet_page(browser, server.url) as opened:
        yield opened


def as_owner(page):
    """Give the page the administrator's token: readers see estimates in steps."""
    page.add_init_script(f"sessionStorage.setItem('sstq-token', '{ADMINISTRATOR}')")


def picture(page, name, tmp_path, whole=False):
    folder = Path(os.environ.get("SSTQ_PICTURES", tmp_path))
    page.screenshot(path=folder / f"dashboard-{name}.png", full_page=whole)
    assert (folder / f"dashboard-{name}.png").stat().st_size > 20_000


def choose(page, name):
    page.click(f"nav a[data-name={name}]")
    page.wait_for_function(
        "(name) => document.getElementById('name').textContent === name", arg=name
    )
    playwright.expect(page.locator("#facts")).to_contain_text("In this estimate")


def table(page, caption):
    rows = page.locator(f"figure:has(figcaption:text-is('{caption}')) tbody tr")
    return [row.locator("th, td").all_text_contents() for row in rows.all()]


@needs_browser
def test_an_estimate_changes_while_messages_arrive(page, server, tmp_path):
    as_owner(page)
    page.goto(f"{server.url}/hours-of-sleep")
    covered = page.locator("#facts div:nth-child(2) dd")
    playwright.expect(covered).to_have_text("3,000")
    assert "3,000 messages" in page.locator("nav a[aria-current=page]").text_content()
    before = table(page, "Mean of each coordinate")
    assert [row[0] for row in before] == DAYS
    assert [row[0] for row in table(page, "Standard error against messages")][:3] == [
        "300",
        "1,000",
        "3,000",
    ]
    page.evaluate("document.querySelector('#estimate-figures details').open = true")
    send(server, "hours-of-sleep", SLEEP, sleep(10_000, 9))
    playwright.expect(covered).to_have_text("13,000")
    after = table(page, "Mean of each coordinate")
    assert after != before
    assert float(after[5][2]) < float(before[5][2])  # the error bar of Saturday
    # not built anew
    assert page.evaluate("document.querySelector('#estimate-figures details').open")
    playwright.expect(page.locator("#arrivals-text")).to_contain_text(
        "13,000 messages in"
    )
    page.evaluate("document.querySelector('#estimate-figures details').open = false")
    picture(page, "bars", tmp_path, whole=True)


@needs_browser
def test_groups_side_by_side_with_the_keyboard_alone(page, server, tmp_path):
    as_owner(page)
    page.goto(server.url)
    page.wait_for_selector("nav a[data-name=travel]")
    page.focus("nav a[data-name=travel]")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server.url}/travel")
    playwright.expect(page.locator("#name")).to_have_text("travel")
    playwright.expect(page.locator("#facts div:nth-child(2) dd")).to_have_text("10,000")
    assert page.evaluate("document.activeElement.id") == "campaign"
    means = table(page, "Mean of each group")
    estimate = server.estimate("travel", 10_000)
    # A group of nobody has no mean, but in 0.1 % of runs.
    shown = [mean for mean in estimate["groups"]["means"] if mean[0] is not None]
    assert [[float(cell) for cell in row[1::2]] for row in means] == pytest.approx(
        np.transpose(shown), rel=1e-3
    )
    if len(shown) == 3:
        playwright.expect(page.locator("body")).to_contain_text(
            "1 of 4 groups have too few people for a mean"
        )
    assert [row[0] for row in table(page, "Share of each group")] == [
        "under 30",
        "30 to 60",
        "over 60",
        "unborn",
    ]
    page.go_back()
    page.wait_for_url(f"{server.url}/")
    page.goto(f"{server.url}/travel")
    spent = sum(mechanism.epsilon for mechanism in (SLEEP, TRAVEL, RING))
    playwright.expect(page.locator("#privacy")).to_contain_text(f"ε = {spent:g}")
    picture(page, "groups", tmp_path)
    # Every picture has a name and a table.
    for figure in page.locator("figure").all():
        assert len(figure.locator("canvas[role=img]").get_attribute("aria-label")) > 30
        assert figure.locator("tbody tr").count() > 0
    unnamed = "button:not(:has-text('')), input:not([id]), a:not([href]):not([hidden])"
    assert page.locator(unnamed).count() == 0
    certificate = page.locator("#certificate").text_content()
    # as it is shown, with integers that JavaScript cannot hold
    assert verify(certificate, TRAVEL).holds


@needs_browser
def test_an_image_behind_a_token_and_its_csv(page, server, tmp_path):
    page.goto(f"{server.url}/ring")
    playwright.expect(page.locator("#token-form")).to_be_visible()
    playwright.expect(page.locator("#token-problem")).to_contain_text(
        "ring needs a token"
    )
    page.fill("#token", ADMINISTRATOR)
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#facts div:nth-child(2) dd")).to_have_text("10,000")
    assert page.evaluate("sessionStorage.length") == 1
    assert ADMINISTRATOR not in page.evaluate(
        "JSON.stringify(localStorage) + document.cookie + location.href"
    )
    page.click("#theme-button")
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(18, 22, 29)"
    )
    picture(page, "image", tmp_path)
    pixels = page.evaluate(
        "Array.from(document.querySelector('.images canvas').getContext('2d').getImageData(0, 0, 16, 16).data)"
    )
    grey = np.array(pixels)[::4]
    value = np.array(server.estimate("ring", 10_000)["value"])
    assert np.abs(grey - 255 * (value - value.min()) / np.ptp(value)).max() <= 1
    with page.expect_download() as download:
        page.click("#csv")
    assert download.value.suggested_filename == "ring.csv"
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert [float(row["value"]) for row in rows] == value.tolist()
    page.click("#token-button")
    page.click("#token-forget")
    playwright.expect(page.locator("nav a[data-name=ring]")).to_have_count(0)
    assert page.evaluate("sessionStorage.length") == 0


@needs_browser
def test_a_wrong_token_a_lost_connection_and_a_deleted_campaign_are_said(
    browser, server
):
    page = browser.new_page()
    page.add_init_script(HASTY)
    page.goto(server.url)
    page.click("#token-button")
    for token, sentence in (
        ("wrong", "neither the administrator's"),
        (ADMINISTRATOR, ""),
    ):
        page.fill("#token", token)
        page.click("text=Use it")
        playwright.expect(page.locator("#token-problem")).to_contain_text(sentence)
    playwright.expect(page.locator("nav a[data-name=ring]")).to_be_visible()
    page.context.set_offline(True)
    playwright.expect(page.locator("#connection")).to_contain_text("does not answer")
    page.context.set_offline(False)
    playwright.expect(page.locator("#connection")).to_contain_text("Live")
    server.create("gone", SMALL)
    page.goto(f"{server.url}/gone")
    playwright.expect(page.locator("#estimate-text")).to_contain_text("No estimate yet")
    server.administer("PATCH", "/v1/campaigns/gone", json={"closed": True})
    playwright.expect(page.locator("#estimate-text")).to_have_text(
        "The campaign closed without a message."
    )
    assert server.administer("DELETE", "/v1/campaigns/gone").status_code < 300
    playwright.expect(page.locator("#token-problem")).to_contain_text("does not exist")
    page.close()


@needs_browser
def test_a_reader_sees_the_released_estimate_and_no_note_for_developers(page, server):
    server.create("steps", SMALL, labels=LONG, readers="public", release_every=50)
    page.goto(f"{server.url}/steps")
    playwright.expect(page.locator("#readers")).to_have_text(
        "Everybody sees an estimate as soon as 50 messages are counted."
    )
    for messages, seen in ((60, "60"), (100, "60"), (7000, "7,000")):
        before = server.status("steps")["received"]
        send(server, "steps", SMALL, np.zeros((messages - before, 6)))
        server.wait("steps", messages)
        playwright.expect(page.locator("#facts div:nth-child(2) dd")).to_have_text(seen)
    playwright.expect(page.locator("#readers")).to_have_text(
        "Everybody sees the estimate from 7,000 messages, and the next one as soon as 143 more are counted."
    )
    assert "Tokens left" not in page.locator("#facts").text_content()
    assert "frames=" not in page.locator("#note").text_content()


@needs_browser
def test_columns_with_bounds_share_an_axis_and_keep_their_units(page, server):
    """An income of 40,000 hid all other bars, raised an alarm, and its error was drawn beside one of clip."""
    bounds = {"age": (0, 110), "income": (0, 200_000)}
    columns = sstq.FrameUnit(dim=2, epsilon=4.0, frames=1024, bounds=bounds)
    server.create("columns", columns, readers="public")
    send(server, "columns", columns, np.tile([55.0, 40_000.0], (20_000, 1)))
    server.wait("columns", 20_000)
    page.goto(f"{server.url}/columns")
    playwright.expect(page.locator("#facts")).to_contain_text("of a range")
    assert page.locator("#alarm").is_hidden()
    age, income = table(page, "Mean of each column")
    assert (age[0], age[3], income[3]) == ("age", "0 to 110", "0 to 200,000")
    assert abs(float(age[1]) - 55) < 5
    assert abs(float(income[1].replace(",", "")) - 40_000) < 9000
    drawn = page.evaluate(COLOURS.replace("backgroundColor", "data"))
    assert abs(drawn[0] - 50) < 5
    assert abs(drawn[1] - 20) < 5
    measured = float(table(page, "Standard error against messages")[0][1])
    assert 0.005 < measured < 0.02


@needs_browser
def test_a_survey_has_a_panel_per_question(page, server, tmp_path):
    asked = {
        "country": sstq.Choice(["AT", "CH", "DE"]),
        "age": sstq.Number(0, 110, bins=22),
        "city": sstq.Choice(LONG),
    }
    asked |= {
        "visits": sstq.Count(10),
        "mean age": sstq.Mean("age"),
        "age by country": sstq.By("country", "age"),
    }
    survey = sstq.Survey(4.0, asked, people=5000)
    server.create("survey", survey, senders="token")
    as_owner(page)
    page.goto(f"{server.url}/survey")
    playwright.expect(page.locator("#estimate-text")).to_contain_text("No estimate yet")
    rng = np.random.default_rng(5)
    country = rng.choice(["AT", "CH"], 5000, p=[0.3, 0.7])
    people = {
        "country": country,
        "age": rng.normal(45, 9, 5000),
        "city": rng.choice(LONG, 5000),
    }
    people["visits"] = rng.poisson(3, 5000).clip(0, 10)
    body = survey.encode(
        {name: column[:1] for name, column in people.items()}, rng=5
    ).to_bytes()
    assert server.send("survey", survey, body, 1).status_code == 200
    playwright.expect(page.locator("#estimate-text")).to_contain_text("One message")
    # there is nothing to see
    assert page.locator("#estimate-figures .plot:visible").count() == 0
    assert (
        server.send(
            "survey", survey, survey.encode(people, rng=5).to_bytes(), 5000
        ).status_code
        == 200
    )
    playwright.expect(page.locator("#facts div:nth-child(2) dd")).to_have_text("5,001")
    described = {
        each["name"]: each for each in server.estimate("survey", 5001)["questions"]
    }
    assert page.locator("#estimate-figures figcaption").all_text_contents() == list(
        described
    )
    for name, scale in (
        ("country", 100),
        ("age", 100),
        ("city", 100),
        ("visits", 100),
        ("mean age", 1),
        ("age by country", 1),
    ):
        rows = table(page, name)
        found = described[name]
        assert [row[0] for row in rows] == found["items"]
        for place, column in enumerate(("estimate", "low", "high"), 1):
            shown = [
                float(
                    row[place].removesuffix(" %").replace("−", "-").replace("–", "nan")
                )
                for row in rows
            ]
            wanted = [
                float("nan") if value is None else scale * value
                for value in found[column]
            ]
            assert shown == pytest.approx(wanted, rel=1e-3, nan_ok=True)
    pale = [colour.endswith("40") for colour in page.evaluate(COLOURS)]
    # nobody is in DE
    assert (
        pale
        == [low <= 0 for low in described["country"]["low"]]
        == [False, False, True]
    )
    told = [
        page.text_content(f"#estimate-figures figure:nth-child({place}) .text")
        for place in (2, 4)
    ]
    told_mean = page.text_content("#estimate-figures figure:nth-child(5) .text")
    assert re.search(r"\. Mean [0-9.]+ \([0-9.]+ to [0-9.]+\)\.", told_mean)
    for text in told:
        assert "Median" in text
    assert re.search(r"Mean between [0-9.]+ and [0-9.]+\.", told[0])
    assert re.search(r"Mean [0-9.]+ \([0-9.]+ to [0-9.]+\)\.", told[1])
    assert not page.is_visible("#error-section")
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        # charts follow later
        page.wait_for_function(
            "() => document.documentElement.scrollWidth <= innerWidth"
        )
    assert (
        server.administer(
            "PATCH", "/v1/campaigns/survey", json={"closed": True}
        ).status_code
        == 200
    )
    playwright.expect(page.locator("#state")).to_have_text("■ closed")


@needs_browser
def test_a_campaign_from_its_first_message_to_an_alarm(page, server):
    server.create("life", SMALL)
    as_owner(page)
    page.goto(f"{server.url}/life")
    playwright.expect(page.locator("#estimate-text")).to_contain_text("No estimate yet")
    one = SMALL.encode(np.zeros((1, 6)))
    assert server.send("life", SMALL, one.to_bytes(), 1).status_code == 200
    playwright.expect(page.locator("#estimate-text")).to_contain_text(
        "One message: its error is not known"
    )
    assert all(colour.endswith("40") for colour in page.evaluate(COLOURS))
    send(server, "life", SMALL, np.zeros((2000, 6)))
    playwright.expect(page.locator("#facts")).to_contain_text("passed")
    assert [row[0] for row in table(page, "Mean of each coordinate")] == list("012345")
    # Changed terms are shown without a reload, and long names leave room for the bars.
    server.administer("PATCH", "/v1/campaigns/life", json={"labels": LONG})
    playwright.expect(page.locator("#estimate-figures tbody tr th").first).to_have_text(
        LONG[0]
    )
    assert page.locator("figure").count() == 3
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{server.url}/life")
        playwright.expect(page.locator("#facts")).to_contain_text("passed")
        area = page.evaluate(
            "(() => { const {left, right} = Chart.getChart(document.querySelector('#estimate-figures canvas'))"
            ".chartArea; return right - left; })()"
        )
        assert area > 0.4 * min(width, 900)
        ticks = page.evaluate(
            "Chart.getChart(document.querySelector('#error-figures canvas')).scales.y.ticks"
            ".map(({label}) => label).filter(Boolean)"
        )
        assert len(ticks) >= 2
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert (
        server.send(
            "life", SMALL, type(one).concatenate([one] * 2000).to_bytes(), 2000
        ).status_code
        == 200
    )
    playwright.expect(page.locator("#alarm")).to_contain_text(
        "This estimate should not be trusted"
    )


STUDIES = {
    "empty": ({}, "● open", "", "Nothing is known yet."),
    "waiting": ({"hours": 0.0003}, "◷ waiting", "Its time is over, but fewer than 30 people came.", "Nothing is known"),
    "over": (
        {"hours": 0.0003, "too_few": "end"}, "■ ended", "Too few people came to “letters 1 to 3”.",
        "The study ended before anything was known.",
    ),
    "broken": ({}, "✕ failed", "“Letters” could not be learned from.", "Nothing was learned."),
}  # fmt: skip


@needs_browser
def test_a_study_without_a_result_says_why(page, server):
    for name, (terms, *_) in STUDIES.items():
        assert begin(server, name, words(), 100, **terms).status_code == 201

    def failing(route):
        """No stage of ours can be made that is not learned from: the collector's own tests have one."""
        found = route.fetch().json()
        for row in found["campaigns"]:
            if row["name"] == "broken":
                note = "“Letters” could not be learned from"
                row["study"] |= {"state": "failed", "note": note}
        route.fulfill(json=found)

    as_owner(page)
    page.route("**/v1/campaigns", failing)
    for name, (_, state, note, text) in STUDIES.items():
        page.set_viewport_size({"width": 400, "height": 900})
        page.goto(f"{server.url}/{name}")
        playwright.expect(page.locator("#state")).to_have_text(state)
        place = "#alarm" if name == "broken" else "#note"
        playwright.expect(page.locator(place)).to_have_text(note)
        playwright.expect(page.locator("#estimate-text")).to_contain_text(text)
        playwright.expect(page.locator("#stages li")).to_have_count(1)
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@needs_browser
def test_a_period_in_which_nobody_answered_is_shown_as_such(page, server):
    assert begin(server, "still", panel(2), 10, hours=1e-4).status_code == 201
    as_owner(page)
    page.goto(f"{server.url}/still")
    mark = page.locator("#stages li .state").last
    playwright.expect(mark).to_have_text("■ nobody answered")
    said = page.locator("#estimate-text")
    playwright.expect(said).to_have_text("The study ended before anything was known.")
    for width in (980, 400):
        page.set_viewport_size({"width": width, "height": 900})
        stages = page.locator("#stages")
        assert stages.evaluate("list => list.scrollWidth <= list.clientWidth")


IN_THE_LIST = """link => {
  const own = link.getBoundingClientRect(), list = link.closest("ul").getBoundingClientRect();
  return own.top >= list.top && own.bottom <= list.bottom;
}"""


@needs_browser
def test_the_list_shows_the_campaign_that_was_chosen(page, server):
    """Also where it is narrow, and also after somebody has gone back to another one."""
    for number in range(12):
        server.create(f"row-{number:02}", SMALL)
    as_owner(page)
    page.set_viewport_size({"width": 400, "height": 900})
    last = page.locator("nav a[data-name='row-11']")
    first = page.locator("nav a[data-name='row-00']")
    page.goto(f"{server.url}/row-11")
    until(lambda: last.evaluate(IN_THE_LIST))
    assert not first.evaluate(IN_THE_LIST)
    first.click()
    playwright.expect(page.locator("#name")).to_have_text("row-00")
    assert not last.evaluate(IN_THE_LIST)
    page.go_back()
    until(lambda: last.evaluate(IN_THE_LIST))


@needs_browser
def test_many_campaigns_can_be_searched(page, server):
    for number in range(9):
        server.create(f"many-{number}", SMALL)
    as_owner(page)
    page.goto(server.url)
    page.fill("#search", "many-7")
    playwright.expect(page.locator("nav li")).to_have_count(1)
    page.fill("#search", "nowhere")
    playwright.expect(page.locator("#campaigns-missed")).to_be_visible()


def test_files_of_the_page_are_those_that_were_committed(server):
    static = files("sstq.service") / "dashboard" / "static"
    known = json.loads((static / "vendor" / "vendored.json").read_text())
    chart = (static / "vendor" / "chart.umd.min.js").read_bytes()
    assert f"Chart.js v{known['version']}".encode() in chart[:100]
    page = server.http.get("/")
    assert known["files"]["chart.umd.min.js"]["integrity"] in page.text
    assert page.headers["content-security-policy"] == CONTENT_POLICY
    assert "unsafe" not in CONTENT_POLICY
    again = server.http.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert server.http.get("/dashboard/vendor/chart.umd.min.js").content == chart
    assert server.http.get("/favicon.ico").status_code == 404


@needs_browser
def test_a_shuffled_campaign_shows_what_arrived_justifies(server, page, tmp_path):
    """Last in this file: other pages count the campaigns."""
    shuffler = SigningKey.generate()
    terms = {
        "url": "https://shuffle.example",
        "key": shuffler.public.hex(),
        "sealing_key": "cd" * 32,
        "threshold": 200,
    }
    campaign = {
        "closes": "2100-01-01T00:00:00Z",
        "senders": "single-use",
        "shuffling": terms,
    }
    server.create("shuffled", SLEEP, labels=DAYS, readers="public", **campaign)
    page.goto(f"{server.url}/shuffled")
    playwright.expect(page.locator("#facts")).to_contain_text("nothing yet")
    found, _, (sealing_key,) = read_document(
        server.http.get("/v1/campaigns/shuffled").content
    )
    crowd = found.crowd(sealing_key)
    rows = payloads(SLEEP.encode(sleep(300, 1)))
    body = b"".join(seal(row, sealing_key, envelope_info(crowd, 0)) for row in rows)
    digest = SLEEP.digest()
    checksum = hashlib.sha256(body).hexdigest()
    numbers = {
        "slot": 0,
        "size": 300,
        "tokens": 1000,
        "part": 0,
        "parts": 1,
        "count": 300,
    }
    names = {
        "campaign": "shuffled",
        "digest": digest,
        "crowd": crowd.hex(),
        "sha256": checksum,
    }
    manifest = Manifest(**names, **numbers, batch=secrets.token_hex(16))
    headers = {"Content-Type": "application/octet-stream"} | manifest.signed(shuffler)
    assert server.http.post(
        "/v1/campaigns/shuffled/batches", content=body, headers=headers
    ).json() == {"count": 300}
    epsilon = shuffled_epsilon(SLEEP, 300, 1e-6)
    rounded = float(f"{epsilon:.4g}")
    expected = f"({rounded:g}, 1e-6)"
    fact = f"Shuffled ε, δ = 1e-6{rounded:g}"
    playwright.expect(page.locator("#facts")).to_contain_text(fact)
    playwright.expect(page.locator("#privacy-text")).to_contain_text(
        "otherwise a participant spends ε = 4"
    )
    half = float(f"{shuffled_epsilon(SLEEP, 150, 1e-6):.4g}")
    shown = f"{expected} for 300 people (ε = {half:g} if half of them are fake; nothing against the owner of 29 % of"
    playwright.expect(page.locator("#privacy-text")).to_contain_text(shown)
    playwright.expect(page.locator("#privacy")).to_contain_text("threshold of a crowd")
    picture(page, "shuffled", tmp_path, whole=True)
