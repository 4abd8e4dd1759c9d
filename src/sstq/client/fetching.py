"""Checks of what a service answered with: whose document it is, and whether its terms are what the user allows."""

from __future__ import annotations

from typing import NamedTuple

from sstq.accounting.ledger import ledger_price
from sstq.checks import ArgumentError
from sstq.client.campaigns import Campaign, Document, Shuffling, read_document
from sstq.client.http import Answer
from sstq.client.signing import SHUFFLER_PREFIX, signer, verify
from sstq.client.targets import Target


class Allowed(NamedTuple):
    """What the user of a client allows: see `Client`."""

    most_epsilon: float
    shuffler_url: str | None
    least_threshold: int | None


class Fetched(NamedTuple):
    """A campaign's document, the collector's key that signed it, and the ε per person."""

    document: Document
    key: str
    price: float


def accepted(answer: Answer, target: Target, allowed: Allowed) -> Fetched:
    """Read and check the document of a campaign, or of the open stage of a study; ValueError if it is not allowed."""
    document = read_document(answer.content)
    campaign = document.campaign
    signature = answer.headers.get("SSTQ-Signature", "")
    key = signer(answer.content, signature, document.keys, target.collector_key)
    if target.name != campaign.link_name:
        raise refusal_to_send(
            f"the collector returned the campaign {campaign.name!r} instead of {target.name!r}"
        )
    if campaign.shuffling is not None:
        _check_shuffler(campaign, campaign.shuffling, answer, target)
        if allowed.least_threshold is not None:
            _check_crowd(campaign, campaign.shuffling, allowed.least_threshold)
    elif (
        target.shuffler_key is not None
        or allowed.shuffler_url is not None
        or allowed.least_threshold is not None
    ):
        raise refusal_to_send(
            "the campaign names no shuffler instead of the pinned one"
        )
    price = ledger_price(campaign.mechanism)
    if price > allowed.most_epsilon:
        asked = f"the campaign asks for epsilon = {price!r} per person"
        problem = f"must be at least {price!r}, got {allowed.most_epsilon!r}: {asked}; nothing was sent"
        raise ArgumentError("most_epsilon", problem)
    return Fetched(document, key, price)


def _check_shuffler(
    campaign: Campaign, terms: Shuffling, answer: Answer, target: Target
) -> None:
    """ValueError unless the shuffler is the pinned one, is here, and signed the document.

    Its signature covers its address, both sealing keys and the terms. It signs one document for everybody, so the
    collector cannot give one person a key or an address of their own.
    """
    pinned = target.shuffler_key
    if target.collector_key is None or pinned is None:
        missing = target.collector_key is None
        raise ArgumentError(
            "pinned_key" if missing else "pinned_shuffler",
            "must be given: a shuffled campaign needs both public keys, known from its operators, or a link "
            "that has them; nothing was sent",
        )
    if terms.key != pinned:
        raise refusal_to_send(
            f"the campaign names the shuffler {terms.key} instead of the pinned one"
        )
    if terms.url != target.address:
        remedy = (
            f"If its operator confirms that address, use {terms.url}/{campaign.name}"
        )
        raise refusal_to_send(
            f"the campaign's shuffler is at {terms.url}, not at {target.address}",
            remedy,
        )
    try:
        signature = answer.headers.get("SSTQ-Shuffler-Signature", "")
        verify(answer.content, signature, bytes.fromhex(pinned), SHUFFLER_PREFIX)
    except ValueError as error:
        raise refusal_to_send(
            f"{target.address} is not the shuffler that the campaign names"
        ) from error


def _check_crowd(campaign: Campaign, terms: Shuffling, least_threshold: int) -> None:
    """ValueError unless every crowd has at least so many people whom no single party can be."""
    crowd = terms.threshold if terms.below_threshold == "drop" else 1
    if crowd < least_threshold:
        fewer = f"fewer than least_threshold = {least_threshold}"
        raise refusal_to_send(
            f"the campaign forwards crowds of {crowd} people, {fewer}"
        )
    if campaign.senders == "everybody":
        raise refusal_to_send(
            f"least_threshold = {least_threshold} protects nobody where senders = 'everybody': one party may be "
            "all the others of a crowd",
            "Ask for a campaign with single-use tokens, or leave out least_threshold",
        )


def refusal_to_send(problem: str, remedy: str = "") -> ValueError:
    """The error for what is known before anything is encoded."""
    return ValueError(f"{problem}; nothing was sent{'. ' * bool(remedy)}{remedy}")
