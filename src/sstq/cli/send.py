"""`sstq send`: encodes vectors and sends them to a collector."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sstq.cli.common import (
    COLUMNS,
    GROUPS,
    NO_HEADER,
    WrongUsage,
    argument,
    check_usage,
    chosen,
    flag,
    option,
    refuse_empty_variables,
    required,
    several_messages,
)
from sstq.cli.terminal import Facts, note, progress, show_facts, warn

if TYPE_CHECKING:
    from sstq.accounting import Ledger
    from sstq.client import Client
    from sstq.inputs import LocalReport, People


def send(
    url: str = argument("Send to this campaign: its address or link.", metavar="URL"),
    vectors: list[Path] = argument(
        "Send these vectors: .npy, Parquet or CSV, a row per person.",
        metavar="VECTORS...",
    ),
    most_epsilon: float = required(
        "Refuse a campaign that asks for a larger ε per person."
    ),
    pinned_key: str | None = option(
        "Refuse a collector without this key.",
        "--collector-key",
        envvar="SSTQ_COLLECTOR_KEY",
    ),
    pinned_shuffler: str | None = option(
        "Refuse a shuffler without this key.",
        "--shuffler-key",
        envvar="SSTQ_SHUFFLER_KEY",
    ),
    least_threshold: int | None = option(
        "Refuse a campaign with crowds of fewer people.", min=2
    ),
    ledger: Path | None = option("Charge this ledger file before anything is sent."),
    total_epsilon: float | None = option("Create the ledger with this total ε."),
    columns: str | None = COLUMNS,
    no_header: bool = NO_HEADER,
    groups: Path | None = GROUPS,
    token: str | None = option(
        "Use this token; give it as a variable or in a file, since ps shows options.",
        envvar="SSTQ_SEND_TOKEN",
    ),
    tokens: Path | None = option(
        "Use the token, or the single-use tokens, in this file."
    ),
    again: bool = flag(
        "Send files again that were sent before, and spend ε again.", "--again"
    ),
) -> None:
    """Encode vectors as private messages and send them to a campaign, retrying until all are stored.

    The campaign's signature is checked. Without --collector-key, the collector's key is printed: pass it from then on.
    A shuffled campaign needs the shuffler's address and both keys, or the link that `sstq campaign create` prints. Rows
    that cannot be encoded, such as those with nan, are sent as zero vectors: the collector would notice who refuses.
    Messages wait in your state folder ($XDG_STATE_HOME/sstq/outbox) until they are acknowledged. Run the same command
    again after a failure: it sends the same bytes and spends nothing more. Files that were sent to a campaign are
    refused a second time. They are recognised by their content: a person who is in two different files is sent twice,
    and spends ε twice. To a study, rows are answers to the stage that is open: send each person to one stage only.

    Example: sstq send https://collect.example/steps vectors.npy --most-epsilon 2

    Example: sstq send https://collect.example/steps vectors.npy --most-epsilon 2 --ledger me.ledger --total-epsilon 4
    """
    from sstq.client import Client
    from sstq.inputs import LocalReport

    refuse_empty_variables("SSTQ_COLLECTOR_KEY", "SSTQ_SHUFFLER_KEY", "SSTQ_SEND_TOKEN")
    if "://" not in url:
        raise WrongUsage(
            f"URL must begin with http:// or https://, got {url!r}; did you mean http://{url}?"
        )
    listed = _read_tokens(tokens)
    kept = _open_ledger(ledger, total_epsilon)
    client = Client(
        url,
        most_epsilon=most_epsilon,
        pinned_key=pinned_key,
        pinned_shuffler=pinned_shuffler,
        least_threshold=least_threshold,
        ledger=kept,
        outbox=_state_folder() / "outbox",
        token=token if listed is None else listed,
    )
    names = [_content_hash(path) for path in vectors]
    waited = client.outbox.still_wait(names)
    with _explaining():
        sent = client.send_waiting()
    report = LocalReport()
    if not waited:
        client.check_ready()
        if not again:
            _check_new(client, names, vectors)
        if client.campaign.stage is not None:
            sent += _answer_and_send(client, vectors, columns, names)
        else:
            people = client.campaign.mechanism.input.open(
                vectors,
                columns=chosen(columns, no_header),
                groups=groups,
                answering=True,
            )
            sent += _encode_and_send(client, people, names, report)
    elif len(waited) < len(names):
        raise ValueError(
            "some of these files waited in the outbox and are sent now; send the others by themselves"
        )
    _show_sent(client, sent, report, kept)
    if pinned_key is None and "#" not in url:
        note(
            f"The collector's key was not checked; next time pass --collector-key {client.key}"
        )


def _read_tokens(path: Path | None) -> list[str] | None:
    """The tokens in a file, if there is one."""
    if path is None:
        return None
    tokens = path.read_text().split()
    if not tokens:
        raise WrongUsage(
            f"--tokens {path}: the file is empty; sstq campaign tokens prints tokens"
        )
    return tokens


def _open_ledger(path: Path | None, total_epsilon: float | None) -> "Ledger | None":
    """Open or create a ledger, if there is one."""
    from sstq.accounting import Ledger

    if path is None:
        if total_epsilon is not None:
            raise WrongUsage("--total-epsilon needs --ledger FILE")
        return None
    exists = path.exists()
    if total_epsilon is None and not exists:
        raise WrongUsage(
            f"there is no ledger {path}; pass --total-epsilon to create it"
        )
    with check_usage():
        return Ledger(path, None if exists else total_epsilon)


def _show_sent(
    client: "Client", sent: int, report: "LocalReport", ledger: "Ledger | None"
) -> None:
    mechanism = client.campaign.mechanism
    if report.clipped > 0.05 * report.vectors:
        share = 100 * report.clipped / report.vectors
        warn(
            f"{share:.0f} % of the vectors are longer than clip = {mechanism.clip:g} and were scaled down"
        )
    facts: Facts = {
        "campaign": client.campaign.name,
        "messages acknowledged": sent,
        "bits per message": mechanism.message_bits,
        "epsilon per message": f"{mechanism.epsilon!r}",
        **several_messages(mechanism),
        "public key of the collector": client.key,
        "epsilon left in the ledger": ledger and repr(ledger.remaining),
    }
    show_facts("sent", facts)


def _encode_and_send(
    client: "Client", people: "People", names: Sequence[str], report: "LocalReport"
) -> int:
    """Encode files that were never sent, and send them; returns how many messages were acknowledged."""
    from sstq.client.http import RequestError
    from sstq.mechanisms.answers import encode_files
    from sstq.messages.batch import Messages

    mechanism = client.campaign.mechanism
    try:
        client.check_people(people.count)
    except ValueError as error:
        # Another token changes nothing at a campaign that is closed, or a collector that does not answer.
        if isinstance(error, RequestError) and error.status != 403:
            raise
        kind = "count" if client.campaign.senders == "single-use" else "people"
        command = f"sstq campaign tokens {client.campaign.name} --{kind} {people.count}"
        raise ValueError(
            f"{error}. The owner creates tokens with: {command}"
        ) from error
    with (
        progress(
            "Encoding and sending", 2 * people.count * mechanism.messages
        ) as advance,
        _explaining(),
    ):
        encoded = encode_files(
            mechanism, people, report=report, advance=advance, answering=True
        )
        return client.send_messages(
            Messages.concatenate(list(encoded)), names=names, progress=advance
        )


def _answer_and_send(
    client: "Client", files: Sequence[Path], column: str | None, names: Sequence[str]
) -> int:
    """Answer the stage of a study for the people in files; returns how many messages were acknowledged."""
    from sstq.checks import ArgumentError
    from sstq.messages.batch import Messages

    try:
        answers = [client.campaign.question.encode_file(path, column) for path in files]
    except ArgumentError as error:
        name = "columns" if error.argument == "column" else error.argument
        raise ArgumentError(name, error.problem) from error
    with _explaining():
        return client.send_messages(Messages.concatenate(answers), names=names)


def _check_new(client: "Client", names: Sequence[str], vectors: Sequence[Path]) -> None:
    """ValueError if one of the files was sent to this campaign before."""
    from sstq.checks import ArgumentError

    for name, path in zip(names, vectors, strict=True):
        if client.outbox.were_sent([name]):
            problem = f"must be set to send {path} once more, which spends these people's ε once more"
            raise ArgumentError(
                "again",
                f"{problem}; nothing was sent, because it was sent to this campaign before",
            )


@contextmanager
def _explaining() -> Iterator[None]:
    """Say how to send what still waits."""
    from sstq.client import DeliveryError

    try:
        yield
    except DeliveryError as error:
        if error.waiting:
            note(
                "Run the same command again: it sends the same bytes and spends nothing more."
            )
        raise


def _content_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _state_folder() -> Path:
    """The folder of this user's state, which nobody else can read."""
    folder = (
        Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        / "sstq"
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
