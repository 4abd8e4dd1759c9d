"""The terms of a new campaign: of a file, a shuffler or a study."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.collected import ask
from sstq.cli.common import WrongUsage, check_file, check_usage, given, read_study
from sstq.cli.terminal import note, warn

if TYPE_CHECKING:
    from sstq.client import Campaign

_SHUFFLER_SECONDS = 10.0


def read_terms(path: Path | None, **options: Any) -> dict[str, Any]:
    """The terms of a file, and of options."""
    return (_read_object(path) if path else {}) | given(**options)


def study_terms(
    path: Path, people: int | None, hours: float | None, terms: dict[str, Any]
) -> dict[str, Any]:
    """What creates the study of a file; says what to expect of it."""
    study = read_study(path)
    if people is None:
        raise WrongUsage("pass --people N: how many there are for all stages")
    if "closes" in terms:
        raise WrongUsage("--closes is for campaigns; a stage of a study lasts --hours")
    with check_usage():
        planned = study.plan(people)
    (note if planned.works else warn)(str(planned))
    state = json.loads(study.to_json())
    return given(study=state, people=people, hours=hours)


def shuffling_terms(path: Path) -> dict[str, Any]:
    """The terms of a file, and the shuffler's sealing key."""
    terms = _read_object(path, "url", "key", "threshold")
    terms["url"] = str(terms["url"]).rstrip("/")
    # The shuffler's signature of the campaign, under the key of the file, will vouch for this one.
    terms["sealing_key"] = ask("GET", terms["url"], "/key").get("sealing_key")
    if terms["sealing_key"] is None:
        raise ValueError(
            f"there is no shuffler at {terms['url']}; put the address of one into {path}"
        )
    return terms


def check_shuffler(
    made: "Campaign", name: str, link: str, url: str, token: str
) -> None:
    """Do what a sender does before it seals anything; if that fails, there is no campaign."""
    from sstq.accounting.ledger import ledger_price
    from sstq.client import Client

    try:
        Client(
            link, most_epsilon=ledger_price(made.mechanism), patience=_SHUFFLER_SECONDS
        )
    except ValueError as error:
        ask("DELETE", url, f"/campaigns/{name}", token)
        raise ValueError(
            f"the campaign was not created, because its shuffler cannot serve it: {error}; pass the address and the "
            "public key that sstq shuffler prints, and run it with this collector's address as --collector and its own "
            "as --public-url"
        ) from error


def _read_object(path: Path, *needed: str) -> dict[str, Any]:
    from sstq.files.strict_json import read_json

    with check_file(path, "JSON"):
        content: Any = read_json(path.read_bytes())
    if not isinstance(content, dict) or not set(needed) <= set(content):
        raise WrongUsage(
            f"{path} must be a JSON object"
            + " with url, key and threshold" * bool(needed)
        )
    return content
