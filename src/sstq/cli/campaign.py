"""`sstq campaign`: creates, lists, changes, closes and exports the campaigns of a collector."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import (
    ForceOption,
    MechanismOption,
    WrongUsage,
    argument,
    check_output,
    check_usage,
    option,
    output_option,
    read_mechanism,
    write_text,
)
from sstq.cli.terminal import Facts, note, show_facts, show_rows, show_table

if TYPE_CHECKING:
    from sstq.client import Campaign

HELP = """
Manage the campaigns of a collector (sstq serve).

The address and the administrator's token come from SSTQ_URL and SSTQ_ADMINISTRATOR_TOKEN, or --url and --token; others
on this machine can see a token that is an option.
"""
_DEFAULT_URL = "http://127.0.0.1:8080"
_SHUFFLER_SECONDS = 10.0

_Name = Annotated[
    str,
    argument("The campaign's name: 1 to 64 characters out of a-z, 0-9 and hyphens."),
]
_Url = Annotated[
    str, option("Use the collector at this address.", "--url", envvar="SSTQ_URL")
]
_Token = Annotated[
    str,
    option(
        "Use this administrator token.", "--token", envvar="SSTQ_ADMINISTRATOR_TOKEN"
    ),
]
_Closes = Annotated[
    str | None, option("Stop accepting messages then, such as at 2027-02-07T18:00:00Z.")
]
_Readers = Annotated[
    str | None,
    option(
        "Choose who may read the estimate.",
        metavar="administrator|token|public",
        show_default="administrator",
    ),
]
_Yes = Annotated[bool, option("Do not ask.", "--yes")]
_Terms = Annotated[
    Path | None,
    option('Add the terms of this JSON file, such as {"labels": ["home", "work"]}.'),
]


def create(
    name: _Name,
    mechanism: MechanismOption,
    token: _Token,
    url: _Url = _DEFAULT_URL,
    closes: _Closes = None,
    senders: Annotated[
        str,
        option("Choose who may send messages.", metavar="everybody|token|single-use"),
    ] = "everybody",
    readers: _Readers = None,
    shuffling: Annotated[
        Path | None, option("Let the shuffler of this JSON file mix the messages.")
    ] = None,
    terms: _Terms = None,
    yes: _Yes = False,
) -> None:
    """Create a campaign and print its link for clients and its shared tokens, which the collector cannot show again.

    The file of a shuffler is such as {"url": "https://shuffle.example", "key": "KEY", "threshold": 10000}, with the key
    that `sstq shuffler` prints; `delta` (1e-6) and `below_threshold` ("drop" or "local") may be added. The shuffler
    must run: it is asked for the campaign and must sign it with that key. Only with --senders single-use does the
    collector report a shuffled ε.

    Further terms are opens, labels (of coordinates), group_labels, image_shape and most_messages (per upload).

    Example: sstq campaign create steps --mechanism m.json --closes 2027-02-07T18:00:00Z --readers public
    """
    from sstq.client import Campaign

    mixed = None if shuffling is None else _shuffling(shuffling)
    with check_usage():
        given = _given(
            terms, closes=closes, senders=senders, readers=readers, shuffling=mixed
        )
        made = Campaign.from_dict(
            {"name": name, "mechanism": read_mechanism(mechanism)} | given
        )
    _confirm_end(made.terms().get("closes"), yes)
    tokens = _ask("POST", url, "/campaigns", token, made.to_dict())
    link = f"{url.rstrip('/')}/{name}#collector-key={_ask('GET', url, '/key')['key']}"
    if made.shuffling is not None:
        link = f"{made.shuffling.url}/{link.rpartition('/')[2]}&shuffler-key={made.shuffling.key}"
        _check_shuffler(made, link, url, token)
    facts: Facts = [
        ("campaign", f"{url.rstrip('/')}/{name}"),
        ("link", link),
        ("digest", made.digest),
    ]
    show_facts("campaign", facts + _tokens(tokens))


def list_(token: _Token, url: _Url = _DEFAULT_URL) -> None:
    """List all campaigns with their state and counts.

    Example: sstq campaign list
    """
    columns = ("name", "status", "received", "folded", "covered")
    rows = [
        [row[column] for column in columns]
        for row in _ask("GET", url, "/campaigns", token)["campaigns"]
    ]
    caption = "received: acknowledged messages; folded: messages in the state; covered: messages in the newest estimate"
    show_table("campaigns", columns, rows, caption)


def show(name: _Name, token: _Token, url: _Url = _DEFAULT_URL) -> None:
    """Show a campaign's terms, mechanism and counts, the collector's public key, and the newest estimate.

    Example: sstq campaign show steps
    """
    from sstq.client.http import request

    document = _ask("GET", url, f"/campaigns/{name}", token)
    facts = _ask("GET", url, f"/campaigns/{name}/status", token)
    tokens = {
        f"single-use {field}": facts.pop(field)
        for field in ("tokens_issued", "tokens_unspent")
    }
    shown = (
        "opens",
        "closes",
        "most_messages",
        "senders",
        "readers",
        "message_bits",
        "digest",
        "keys",
    )
    facts |= {field: document.get(field) for field in shown} | {
        "mechanism": document["mechanism"]["mechanism"]
    }
    if document["senders"] == "single-use":
        facts |= tokens
    if "shuffling" in document:
        note(
            "A shuffler mixes the messages when the campaign has closed; until then nothing arrives."
        )
        facts["shuffler"] = document["shuffling"]
    estimate = _ask("GET", url, f"/campaigns/{name}/estimate", token)
    show_facts(
        "campaign",
        _flat(facts | {"test": estimate["checks"], "note": estimate["note"]}),
    )
    if not estimate["count"]:
        note(
            "There is no estimate yet: messages are counted a few seconds after they arrive."
        )
        return
    content = request(
        "GET", f"{url.rstrip('/')}/v1/campaigns/{name}/estimate?format=csv", token=token
    ).content
    rows = [
        {column: _cell(cell) for column, cell in row.items()}
        for row in csv.DictReader(io.StringIO(content.decode()))
    ]
    show_rows(
        "estimate",
        list(rows[0]),
        rows,
        f"sstq campaign export {name} --output {name}.csv",
    )


def close(name: _Name, token: _Token, url: _Url = _DEFAULT_URL) -> None:
    """Close a campaign for good.

    Messages that arrived are kept, and retries of them are still answered.

    Example: sstq campaign close steps
    """
    _ask("PATCH", url, f"/campaigns/{name}", token, {"closed": True})
    note(f"{name} is closed.")
    terms = _ask("GET", url, f"/campaigns/{name}", token).get("shuffling")
    if terms is not None:
        fate = (
            "dropped"
            if terms["below_threshold"] == "drop"
            else "forwarded, and the claim becomes the local ε"
        )
        note(
            f"Fewer than {terms['threshold']} people waiting at the shuffler are {fate}; its log says how many."
        )


def export(
    name: _Name,
    output: Annotated[
        Path,
        output_option(
            "Write this file: .npz for the state, .csv or .json for the estimate."
        ),
    ],
    token: _Token,
    url: _Url = _DEFAULT_URL,
    registry: Annotated[
        bool,
        option("Write a draft for OpenDP's registry (.yaml) instead.", "--registry"),
    ] = False,
    force: ForceOption = False,
) -> None:
    """Write the state or the newest estimate of a campaign to a file; `sstq aggregate --state` continues a state.

    What an entry for the registry needs and no campaign knows is marked with TODO.

    Example: sstq campaign export steps --output steps.npz

    Example: sstq campaign export steps --registry --output steps.yaml
    """
    from sstq.client.campaigns import read_document
    from sstq.client.http import request
    from sstq.client.registry import registry_entry
    from sstq.files.atomic import atomic_file

    routes = {
        ".npz": "state",
        ".csv": "estimate?format=csv",
        ".json": "estimate?format=json",
    }
    check_output(output, force, suffixes=(".yaml",) if registry else tuple(routes))
    if registry:
        document = read_document(
            request("GET", f"{url.rstrip('/')}/v1/campaigns/{name}").content
        )
        estimate = _ask("GET", url, f"/campaigns/{name}/estimate", token)
        entry = registry_entry(document.campaign, estimate, datetime.now(UTC).date())
        write_text(output, json.dumps(entry, indent=2, ensure_ascii=False) + "\n")
        return
    with atomic_file(output) as file:
        _ask(
            "GET",
            url,
            f"/campaigns/{name}/{routes[output.suffix.lower()]}",
            token,
            into=file,
        )
    note(f"wrote {output}")


def tokens(
    name: _Name,
    token: _Token,
    url: _Url = _DEFAULT_URL,
    count: Annotated[
        int | None, option("Create this many single-use tokens.", min=1)
    ] = None,
    people: Annotated[
        int | None,
        option("Create a token for batches of this many people in all.", min=1),
    ] = None,
) -> None:
    """Create tokens and print them, one per line; the collector stores only hashes of them.

    A single-use token lets one person send one message, once. A token for batches lets its holder send files (sstq
    send); without one an upload carries one person's messages.

    Example: sstq campaign tokens votes --count 1000 > tokens.txt

    Example: sstq campaign tokens steps --people 20000
    """
    from sstq.client.campaigns import MOST_TOKENS

    if (count is None) == (people is None):
        raise WrongUsage(
            "pass --count N for single-use tokens, or --people N for a token for batches"
        )
    if people:
        typer.echo(
            _ask("POST", url, f"/campaigns/{name}/senders", token, {"people": people})[
                "send_token"
            ]
        )
    for start in range(0, count or 0, MOST_TOKENS):
        some = {"count": min(MOST_TOKENS, (count or 0) - start)}
        typer.echo(
            "\n".join(
                _ask("POST", url, f"/campaigns/{name}/tokens", token, some)["tokens"]
            )
        )


def change(
    name: _Name,
    token: _Token,
    url: _Url = _DEFAULT_URL,
    closes: _Closes = None,
    readers: _Readers = None,
    origins: Annotated[
        list[str] | None,
        option("Let web pages of this origin send; repeatable.", "--origin"),
    ] = None,
    release_every: Annotated[
        int | None,
        option("Show readers an estimate after so many messages.", show_default="20"),
    ] = None,
    renew: Annotated[
        list[str] | None, option("Replace this one.", metavar="send-token|read-token")
    ] = None,
    terms: _Terms = None,
    yes: _Yes = False,
) -> None:
    """Change a campaign's terms, also opens, labels and most_messages. Its mechanism and shuffler cannot change.

    A renewed token is printed; the old one, and all senders' tokens, stop working. Of a shuffled campaign only its
    times and its readers can change, because people agreed to the rest: create a new campaign for new terms.

    Example: sstq campaign change steps --closes 2027-03-07T18:00:00Z

    Example: sstq campaign change steps --origin https://poll.example

    Example: sstq campaign change steps --renew read-token
    """
    new = None if renew is None else [which.replace("-", "_") for which in renew]
    given = _given(
        terms,
        closes=closes,
        readers=readers,
        origins=origins,
        release_every=release_every,
        renew=new,
    )
    if not given:
        raise WrongUsage(
            "name at least one term to change, such as --closes 2027-03-07T18:00:00Z"
        )
    _confirm_end(given.get("closes"), yes)
    renewed = _tokens(_ask("PATCH", url, f"/campaigns/{name}", token, given))
    note(f"{name} is changed.")
    show_facts("tokens", renewed)


def delete(
    name: _Name,
    token: _Token,
    url: _Url = _DEFAULT_URL,
    yes: _Yes = False,
) -> None:
    """Delete a campaign and everything collected for it, for good.

    Example: sstq campaign delete steps --yes
    """
    if not yes:
        typer.confirm(f"Delete {name} and all of its messages?", abort=True)
    _ask("DELETE", url, f"/campaigns/{name}", token)
    note(f"{name} is deleted.")


COMMANDS = (create, list_, show, change, close, delete, export, tokens)


def _ask(
    method: str,
    url: str,
    path: str,
    token: str | None = None,
    document: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Send a request to a service; returns the JSON of its answer, if any."""
    from sstq.client.http import request

    if document is not None:
        options |= {
            "headers": {"Content-Type": "application/json"},
            "body": json.dumps(document).encode(),
        }
    answer = request(method, f"{url.rstrip('/')}/v1{path}", token=token, **options)
    return answer.json() if answer.content else None


def _confirm_end(closes: Any, yes: bool) -> None:
    """Ask before a campaign is closed for good by a time that has passed."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(closes, str) and closes <= now and not yes:
        typer.confirm(
            f"{closes} has passed (it is {now}): the campaign would be closed for good. Go on?",
            abort=True,
        )


def _cell(text: str) -> object:
    try:
        return float(text) if "." in text or "e" in text else text
    except ValueError:  # a label
        return text


def _given(path: Path | None, **terms: Any) -> dict[str, Any]:
    """The terms of a file, and the others that are not None."""
    return (_read_object(path) if path else {}) | {
        name: value for name, value in terms.items() if value is not None
    }


def _read_object(path: Path, *needed: str) -> dict[str, Any]:
    from sstq.files.strict_json import read_json

    content: Any = read_json(path.read_bytes())
    if not isinstance(content, dict) or not set(needed) <= set(content):
        raise WrongUsage(
            f"{path} must be a JSON object"
            + " with url, key and threshold" * bool(needed)
        )
    return content


def _tokens(answer: dict[str, Any]) -> Facts:
    return [
        (field.replace("_", " "), answer.get(field))
        for field in ("send_token", "read_token")
    ]


def _shuffling(path: Path) -> dict[str, Any]:
    """The terms of a file, and the shuffler's sealing key."""
    terms = _read_object(path, "url", "key", "threshold")
    terms["url"] = str(terms["url"]).rstrip("/")
    # The shuffler's signature of the campaign, under the key of the file, will vouch for this one.
    terms["sealing_key"] = _ask("GET", terms["url"], "/key").get("sealing_key")
    if terms["sealing_key"] is None:
        raise ValueError(
            f"there is no shuffler at {terms['url']}; put the address of one into {path}"
        )
    return terms


def _check_shuffler(made: "Campaign", link: str, url: str, token: str) -> None:
    """Do what a sender does before it seals anything; if that fails, there is no campaign."""
    from sstq.accounting.ledger import ledger_price
    from sstq.client import Client

    try:
        Client(
            link, most_epsilon=ledger_price(made.mechanism), patience=_SHUFFLER_SECONDS
        )
    except ValueError as error:
        _ask("DELETE", url, f"/campaigns/{made.name}", token)
        raise ValueError(
            f"the campaign was not created, because its shuffler cannot serve it: {error}; pass the address and the "
            "public key that sstq shuffler prints, and run it with this collector's address as --collector and its own "
            "as --public-url"
        ) from error


def _flat(value: Any, name: str = "") -> Facts:
    """The names and values in nested JSON."""
    if isinstance(value, list) and not any(isinstance(part, dict) for part in value):
        return [(name, ", ".join(map(str, value)))]
    if not isinstance(value, dict | list):
        return [(name, value)]
    parts = value.items() if isinstance(value, dict) else enumerate(value, 1)
    return [
        fact for key, part in parts for fact in _flat(part, f"{name} {key}".strip())
    ]
