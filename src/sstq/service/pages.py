"""The pages: the dashboard that an operator keeps open, and the poll of `sstq serve --demo`.

The dashboard reads the same routes as any other client, has no build step and loads nothing from elsewhere. The poll is
a survey that everybody may send to and read, with a study of a word as its second tab; the pages are examples/browser
together with the JavaScript client. Wheels contain a copy; a checkout has the files.
"""

import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sstq.client.campaigns import NAME_PATTERN, Campaign
from sstq.clients import client_folder
from sstq.mechanisms.survey import Choice, MultiChoice, Number
from sstq.mechanisms.survey.survey import Survey
from sstq.service import studies
from sstq.service.collector import Collector
from sstq.service.terms import OwnTerms
from sstq.studies import Words

POLL = "demo-poll"
"""The name of the campaign."""
WORDS = "demo-words"
"""The name of the study."""

_QUESTIONS = {
    "How do you get to work?": Choice(
        ["on foot", "by bike", "by bus or train", "by car", "I work at home"]
    ),
    "What do you like about your work?": MultiChoice(
        ["the tasks", "the people", "the pay", "the freedom"]
    ),
    "How many hours do you work per week?": Number(0, 60, bins=12),
    "My workload is too high": Choice(
        ["strongly disagree", "disagree", "no opinion", "agree", "strongly agree"]
    ),
}
_EPSILON = 2.0
_VISITORS = 100_000
_WORDS_EPSILON = 3.0
_LONGEST_WORD = 9
_DRINKERS = 10_000

# The files of the page, in a wheel and in a checkout.
_PACKED = Path(__file__).with_name("demo_page")
_CHECKOUT = Path(__file__).parents[3]


class _Files(StaticFiles):
    """A folder of static files, which browsers may keep as long as their ETag is the same."""

    def file_response(self, *arguments: object, **options: object) -> Response:
        """Return a file, or 304 if the browser has it."""
        response = super().file_response(*arguments, **options)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response


def dashboard_routes() -> list[BaseRoute]:
    """The page at / and at /NAME of each campaign, and its files under /dashboard/."""
    files = _Files(directory=Path(__file__).parent / "dashboard" / "static")

    async def page(request: Request) -> Response:
        if not re.fullmatch(NAME_PATTERN, request.path_params.get("name", "page")):
            raise HTTPException(404)
        return await files.get_response("index.html", request.scope)

    return [Mount("/dashboard", files), Route("/", page), Route("/{name}", page)]


def ensure_poll(collector: Collector) -> None:
    """Create the campaign and the study unless they exist."""
    own = OwnTerms(release_every=5)
    if POLL not in collector.entries:
        survey = Survey(_EPSILON, _QUESTIONS, people=_VISITORS)
        campaign = Campaign(POLL, survey, senders="everybody", readers="public")
        collector.create(campaign, own)
    if WORDS not in collector.entries:
        words = Words(_WORDS_EPSILON, _LONGEST_WORD)
        terms = {"people": _DRINKERS, "readers": "public"}
        studies.create(collector, WORDS, words, terms, own)


def demo_link(collector: Collector) -> str:
    """The path of the page for who runs the collector: its fragment has tokens for batches of simulated visitors."""
    visitors, words = (
        collector.add_sender(collector.entries[name], people)
        for name, people in ((POLL, _VISITORS), (WORDS, _DRINKERS))
    )
    return f"/demo/#visitors={visitors}&words={words}"


def demo_routes() -> list[BaseRoute]:
    """The routes of the page at /demo/ and its files."""
    scripts = client_folder("js")
    folder = _PACKED if _PACKED.exists() else _CHECKOUT / "examples" / "browser"

    async def client(request: Request) -> Response:
        script = scripts / Path(request.url.path).name
        return FileResponse(script, headers={"Cache-Control": "no-cache"})

    own = [Route(f"/demo/{name}", client) for name in ("sstq.js", "studies.js")]
    page = Mount("/demo", _Files(directory=folder, html=True))
    return [Route("/demo", RedirectResponse("demo/")), *own, page]
