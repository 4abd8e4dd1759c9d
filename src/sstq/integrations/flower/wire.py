"""The wire format: the server's request for a private message, and the answers of a round.

Both are a ConfigRecord called "sstq" in a Flower message. The request accompanies the model and holds the mechanism
as JSON, its digest, the number of the round and the names of the arrays that make up the vector. The answer is alone
and holds the message's bytes, the digest and the number of the round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from logging import INFO

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore import log

from sstq.accounting.ledger import check_local
from sstq.mechanisms import Mechanism, from_json
from sstq.messages.batch import Messages

RECORD = "sstq"

# Many nodes of one process get the same mechanism, which is immutable and costly to check.
_mechanism = lru_cache(maxsize=4)(from_json)


@dataclass(frozen=True)
class MessageRequest:
    """The server's request for a private message.

    Attributes:
        mechanism: the mechanism to encode with.
        number: the number of the round, counted by the server.
        names: the names of the arrays whose update is encoded, in order.
    """

    mechanism: Mechanism
    number: int
    names: tuple[str, ...]

    def to_record(self) -> ConfigRecord:
        """Return the request as a record."""
        return ConfigRecord(
            {
                "mechanism": self.mechanism.to_json(),
                "digest": self.mechanism.digest(),
                "round": self.number,
                "arrays": list(self.names),
            }
        )

    @classmethod
    def from_content(cls, content: RecordDict) -> MessageRequest:
        """Read the request of a message, trusting none of its numbers; ValueError if there is none or it is invalid."""
        record = content.config_records.get(RECORD)
        if record is None:
            raise ValueError(
                f"the message has no {RECORD!r} record: the server must wrap its strategy in SstqStrategy"
            )
        text, digest, number, names = (
            record.get(key) for key in ("mechanism", "digest", "round", "arrays")
        )
        if not isinstance(text, str):
            raise ValueError("the request has no mechanism")
        mechanism = check_usable(_mechanism(text))
        if mechanism.digest() != digest:
            raise ValueError("the mechanism does not match the request's digest")
        if type(number) is not int or number < 0:
            raise ValueError(
                f"the number of the round must be a non-negative integer, got {number!r}"
            )
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise ValueError("the request must name the arrays to update")
        return cls(mechanism, number, tuple(str(name) for name in names))

    def answer(self, payload: bytes) -> ConfigRecord:
        """Return the answer with the bytes of a node's messages."""
        digest = bytes.fromhex(self.mechanism.digest())
        return ConfigRecord(
            {"message": payload, "digest": digest, "round": self.number}
        )

    def read_answer(self, content: RecordDict) -> Messages:
        """Read a node's messages; ValueError unless the content is an answer to this request and nothing else."""
        record = content.config_records.get(RECORD)
        if (
            record is None
            or set(content) != {RECORD}
            or set(record) != {"message", "digest", "round"}
        ):
            raise ValueError(
                "an answer must have the fields message, digest and round, and nothing beside them"
            )
        payload = record["message"]
        if not isinstance(payload, bytes) or record != self.answer(payload):
            raise ValueError("the answer must be to this round and mechanism")
        return self.mechanism.messages_from_bytes(payload, self.mechanism.messages)


def check_usable(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism that makes every model update private by itself; ValueError for others."""
    mechanism.input.vectors_only()
    return check_local(mechanism)


@dataclass
class SortedReplies:
    """What arrived in a round.

    Attributes:
        messages: the valid messages, one batch per node, in the order of node ids.
        refused: how many nodes sent an error.
        invalid: how many replies are not one node's first answer to its request.
        missing: how many nodes that were asked sent nothing themselves (for a dead one Flower's SuperLink answers).
        answered: how many requests each node answered, whether or not the answer counts: each has cost it ε.
    """

    messages: list[Messages]
    refused: int
    invalid: int
    missing: int
    answered: Counter[int]


def sort_replies(
    replies: Iterable[Message], request: MessageRequest, asked: Mapping[str, int]
) -> SortedReplies:
    """Collect one private message from each node, and count the rest; `asked` has the node of each message's id."""
    taken: dict[int, Messages] = {}
    refusals = dict[str, str]()
    answered = dict[str, int]()
    invalid = 0
    for reply in replies:
        message_id = reply.metadata.reply_to_message_id
        node = reply.metadata.src_node_id
        if asked.get(message_id) != node:
            # The SuperLink's error in the name of a dead node: that node stays silent.
            invalid += not (reply.has_error() and message_id in asked)
        elif reply.has_error():
            refusals[message_id] = reply.error.reason or "no reason given"
        else:
            answered[message_id] = node
            try:
                messages = request.read_answer(reply.content)
            except ValueError:
                invalid += 1
                continue
            invalid += node in taken
            taken.setdefault(node, messages)
    for reason, times in Counter(refusals.values()).most_common(5):
        log(INFO, "\t> SstqStrategy: %s refused: %s", times, reason)
    # Whatever the order of arrival, the same replies give the same bits.
    ordered = [taken[node] for node in sorted(taken)]
    missing = len(asked.keys() - refusals.keys() - answered.keys())
    return SortedReplies(
        ordered, len(refusals), invalid, missing, Counter(answered.values())
    )
