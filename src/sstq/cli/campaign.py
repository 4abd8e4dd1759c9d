"""`sstq campaign`: creates, lists, changes, closes and exports the campaigns of a collector."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from sstq.cli.campaign_terms import (
    check_shuffler,
    read_terms,
    shuffling_terms,
    study_terms,
)
from sstq.cli.collected import (
    ask,
    fetched,
    show_estimate,
    show_study,
    wait_until_counted,
    write_counts,
)
from sstq.cli.common import (
    FORCE,
    WrongUsage,
    argument,
    check_output,
    check_usage,
    flag,
    option,
    output_option,
    read_mechanism,
    required,
    write_text,
)
from sstq.cli.terminal import (
    Facts,
    agree,
    agree_on_terminal,
    flattened,
    note,
    show_facts,
    show_table,
)

HELP = """
Manage the campaigns of a collector (sstq serve).

The address and the administrator's token come from SSTQ_URL and SSTQ_ADMINISTRATOR_TOKEN, or --url and --token; others
on this machine can see a token that is an option.
"""

_NAME = argument(
    "Name the campaign, by 1 to 64 characters out of a-z, 0-9 and hyphens."
)
_URL = option(
    "Use the collector at this address.",
    "--url",
    default="http://127.0.0.1:8080",
    envvar="SSTQ_URL",
)
_TOKEN = required(
    "Use this administrator token.", "--token", envvar="SSTQ_ADMINISTRATOR_TOKEN"
)
_CLOSES = option("Stop accepting messages then, such as at 2027-02-07T18:00:00Z.")
_READERS = option(
    "Choose who may read the estimate.",
    metavar="administrator|token|public",
    show_default="administrator",
)
_YES = flag("Go on without asking.", "--yes")
_TERMS = option(
    'Add the terms of this JSON file, such as {"labels": ["home", "work"]}.'
)


def create(
    name: str = _NAME,
    token: str = _TOKEN,
    mechanism: Path | None = option(
        "Collect messages of the mechanism in this JSON file.", "--mechanism", "-m"
    ),
    study: Path | None = option(
        "Run the study in this JSON file (sstq study new), stage by stage."
    ),
    people: int | None = option(
        "Expect so many people in all stages of a study.", "--people", "-n"
    ),
    hours: float | None = option("Let each stage of a study last so many hours."),
    url: str = _URL,
    closes: str | None = _CLOSES,
    senders: str = option(
        "Choose who may send messages.",
        default="everybody",
        metavar="everybody|token|single-use",
    ),
    readers: str | None = _READERS,
    shuffling: Path | None = option(
        "Let the shuffler of this JSON file mix the messages."
    ),
    terms: Path | None = _TERMS,
    yes: bool = _YES,
) -> None:
    """Create a campaign and print its link for clients and its shared tokens, which the collector cannot show again.

    A stage of a study ends when its people have answered or its hours are over; then the study learns, and asks the
    next stage by itself. Each person answers one stage, once. If fewer than half of a stage's people came in time, it
    waits for more; the terms {"least": 0.3, "too_few": "end"} change that share, and end the study instead.

    The file of a shuffler is such as {"url": "https://shuffle.example", "key": "KEY", "threshold": 10000}, with the key
    that `sstq shuffler` prints; `delta` (1e-6) and `below_threshold` ("drop" or "local") may be added. The shuffler
    must run: it is asked for the campaign and must sign it with that key. Only with --senders single-use does the
    collector report a shuffled ε.

    Further terms are opens, labels (of coordinates), group_labels, image_shape and most_messages (per upload).

    Example: sstq campaign create steps --mechanism m.json --closes 2027-02-07T18:00:00Z --readers public

    Example: sstq campaign create drinks --study words.json --people 20000
    """
    from sstq.client import Campaign

    if (mechanism is None) == (study is None):
        raise WrongUsage("pass --mechanism FILE, or --study FILE for a study")
    if study is None and (people, hours) != (None, None):
        raise WrongUsage("--people and --hours are for a study; pass --study FILE")
    mixed = None if shuffling is None else shuffling_terms(shuffling)
    asked = {"name": name} | read_terms(
        terms, closes=closes, senders=senders, readers=readers, shuffling=mixed
    )
    if study is not None:
        asked |= study_terms(study, people, hours, asked)
    else:
        asked["mechanism"] = read_mechanism(mechanism or Path())
        with check_usage():
            asked = Campaign.from_dict(asked).to_dict()
    _confirm_end(asked.get("closes"), yes)
    tokens = ask("POST", url, "/campaigns", token, asked)
    made = fetched(url, name)
    link = f"{url.rstrip('/')}/{name}#collector-key={ask('GET', url, '/key')['key']}"
    if made.shuffling is not None:
        link = f"{made.shuffling.url}/{link.rpartition('/')[2]}&shuffler-key={made.shuffling.key}"
        check_shuffler(made, name, link, url, token)
    facts: Facts = {
        "campaign": f"{url.rstrip('/')}/{name}",
        "link": link,
    }
    if made.stage is not None:
        facts["first stage"] = made.stage.name
    facts["digest"] = made.digest
    show_facts("campaign", facts | _tokens(tokens))


def list_(token: str = _TOKEN, url: str = _URL) -> None:
    """List all campaigns with their state and counts.

    Example: sstq campaign list
    """
    columns = ("name", "status", "received", "folded", "covered")
    rows = [
        [row[column] for column in columns]
        for row in ask("GET", url, "/campaigns", token)["campaigns"]
    ]
    caption = "received: acknowledged messages; folded: messages in the state; covered: messages in the newest estimate"
    show_table("campaigns", columns, rows, caption)


def show(name: str = _NAME, token: str = _TOKEN, url: str = _URL) -> None:
    """Show a campaign's terms, mechanism and counts, the collector's public key, and the newest estimate.

    Of a study it shows the stages and what is known so far.

    Example: sstq campaign show steps
    """
    document = ask("GET", url, f"/campaigns/{name}", token)
    facts = ask("GET", url, f"/campaigns/{name}/status", token)
    if facts["study"] is not None:
        show_study(url, name, token, facts)
        return
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
    # Those of a shuffled campaign are at the shuffler.
    if document["senders"] == "single-use" and "shuffling" not in document:
        facts |= tokens
    if "shuffling" in document:
        note(
            "A shuffler mixes the messages when the campaign has closed; until then nothing arrives."
        )
        facts["shuffler"] = document["shuffling"]
    estimate = ask("GET", url, f"/campaigns/{name}/estimate", token)
    show_facts(
        "campaign",
        flattened(facts | {"test": estimate["checks"], "note": estimate["note"]}),
    )
    if not estimate["count"]:
        closed = facts["status"] == "closed" and not facts["received"]
        note(
            _nothing_arrived("shuffling" in document)
            if closed
            else "There is no estimate yet: messages are counted a few seconds after they arrive."
        )
        return
    show_estimate(url, name, token)


def _nothing_arrived(shuffled: bool) -> str:
    """Why a campaign that is closed has no estimate."""
    if shuffled:
        return (
            "Nothing has arrived: the shuffler forwards messages minutes after the end, and drops fewer than the "
            "threshold."
        )
    return "The campaign closed without a message."


def close(
    name: str = _NAME,
    token: str = _TOKEN,
    url: str = _URL,
    yes: bool = _YES,
) -> None:
    """Close a campaign for good.

    Messages that arrived are kept, and retries of them are still answered. On a terminal it asks first.

    Example: sstq campaign close steps
    """
    if not yes:
        agree_on_terminal(f"Close {name} for good?")
    ask("PATCH", url, f"/campaigns/{name}", token, {"closed": True})
    note(f"{name} is closed.")
    terms = ask("GET", url, f"/campaigns/{name}", token).get("shuffling")
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
    name: str = _NAME,
    output: Path = output_option(
        "Write this file: .npz for the state, .csv or .json for the estimate, .parquet for counts."
    ),
    token: str = _TOKEN,
    url: str = _URL,
    registry: bool = flag(
        "Write a draft for OpenDP's registry (.yaml) instead.", "--registry"
    ),
    force: bool = FORCE,
) -> None:
    """Write the state, the newest estimate or the counts of a campaign to a file.

    `sstq aggregate --state` continues a state. Counts say how often each message occurred, for SQL engines; of a study
    with a column “stage”, for `sstq study learn --counts`. What an entry for the registry needs and no campaign knows
    is marked with TODO.

    Example: sstq campaign export steps --output steps.npz

    Example: sstq campaign export steps --registry --output steps.yaml
    """
    from sstq.client.registry import registry_entry
    from sstq.files.atomic import atomic_file

    routes = {
        ".npz": "state",
        ".csv": "estimate?format=csv",
        ".json": "estimate?format=json",
    }
    suffixes = (".yaml",) if registry else (*routes, ".parquet")
    check_output(output, force, suffixes=suffixes)
    if registry:
        campaign = fetched(url, name)
        if campaign.stage is not None:
            raise ValueError(f"{name} is a study, for which there is no draft")
        estimate = ask("GET", url, f"/campaigns/{name}/estimate", token)
        entry = registry_entry(campaign, estimate, datetime.now(UTC).date())
        write_text(output, json.dumps(entry, indent=2, ensure_ascii=False) + "\n")
        return
    suffix = output.suffix.lower()
    is_estimate = suffix in (".csv", ".json") and fetched(url, name).stage is None
    wait_until_counted(url, name, token, "covered" if is_estimate else "folded")
    if suffix == ".parquet":
        write_counts(url, name, token, output)
        note(f"wrote {output}")
        return
    with atomic_file(output) as file:
        ask(
            "GET",
            url,
            f"/campaigns/{name}/{routes[suffix]}",
            token,
            into=file,
        )
    note(f"wrote {output}")


def tokens(
    name: str = _NAME,
    token: str = _TOKEN,
    url: str = _URL,
    count: int | None = option("Create this many single-use tokens.", min=1),
    people: int | None = option(
        "Create a token for batches of this many people in all.", min=1
    ),
) -> None:
    """Create tokens and print them, one per line.

    The collector stores only hashes of them. A single-use token lets one person send one message, once. A token for
    batches lets its holder send files (sstq send); without one an upload carries one person's messages.

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
            ask("POST", url, f"/campaigns/{name}/senders", token, {"people": people})[
                "send_token"
            ]
        )
    for start in range(0, count or 0, MOST_TOKENS):
        some = {"count": min(MOST_TOKENS, (count or 0) - start)}
        typer.echo(
            "\n".join(
                ask("POST", url, f"/campaigns/{name}/tokens", token, some)["tokens"]
            )
        )


def change(
    name: str = _NAME,
    token: str = _TOKEN,
    url: str = _URL,
    closes: str | None = _CLOSES,
    readers: str | None = _READERS,
    origins: list[str] | None = option(
        "Let web pages of this origin send; repeatable.", "--origin"
    ),
    release_every: int | None = option(
        "Show readers an estimate after so many messages.", show_default="20"
    ),
    renew: list[str] | None = option(
        "Replace this token.", metavar="send-token|read-token"
    ),
    terms: Path | None = _TERMS,
    yes: bool = _YES,
) -> None:
    """Change the terms of a campaign.

    Further terms, in a file, are opens, labels and most_messages. Mechanism and shuffler never change. A renewed token
    is printed; the old one, and all senders' tokens, stop working. Of a shuffled campaign only its times and its
    readers can change, because people agreed to the rest: create a new campaign for new terms.

    Example: sstq campaign change steps --closes 2027-03-07T18:00:00Z

    Example: sstq campaign change steps --origin https://poll.example

    Example: sstq campaign change steps --renew read-token
    """
    new = None if renew is None else [which.replace("-", "_") for which in renew]
    changes = read_terms(
        terms,
        closes=closes,
        readers=readers,
        origins=origins,
        release_every=release_every,
        renew=new,
    )
    if not changes:
        raise WrongUsage(
            "name at least one term to change, such as --closes 2027-03-07T18:00:00Z"
        )
    _confirm_end(changes.get("closes"), yes)
    renewed = _tokens(ask("PATCH", url, f"/campaigns/{name}", token, changes))
    note(f"{name} is changed.")
    show_facts("tokens", renewed)


def delete(
    name: str = _NAME,
    token: str = _TOKEN,
    url: str = _URL,
    yes: bool = _YES,
) -> None:
    """Delete a campaign and everything collected for it, for good.

    Example: sstq campaign delete steps --yes
    """
    if not yes:
        agree(f"Delete {name} and all of its messages?")
    ask("DELETE", url, f"/campaigns/{name}", token)
    note(f"{name} is deleted.")


COMMANDS = (create, list_, show, change, close, delete, export, tokens)


def _confirm_end(closes: Any, yes: bool) -> None:
    """Ask before a campaign is closed for good by a time that has passed."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(closes, str) and closes <= now and not yes:
        agree(
            f"{closes} has passed (it is {now}): the campaign would be closed for good. Go on?"
        )


def _tokens(answer: dict[str, Any]) -> Facts:
    return {
        field.replace("_", " "): answer.get(field)
        for field in ("send_token", "read_token")
    }
