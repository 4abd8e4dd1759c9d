"""What goes over the wire: the server's request for a private message, and the answer that carries it.

Both are a ConfigRecord called "sstq" in a Flower message. The request stands beside the model and holds the mechanism
as JSON, its digest, the number of the round and the names of the arrays that make up the vector. The answer is alone
(but for metrics that the app shares by name) and holds the message's bytes, the digest and the number of the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from flwr.app import ConfigRecord, RecordDict

from sstq.accounting import price
from sstq.mechanisms import Mechanism, from_json
from sstq.runs.rounds import client_identifier

__all__ = ["METRICS", "RECORD", "TOO_MUCH", "Answer", "Request", "price"]

RECORD = "sstq"
METRICS = "metrics"
TOO_MUCH = "epsilon = "
"""How a refusal begins when ε is more than the node can spend, on one answer or in total: it will refuse again."""

# Many nodes of one process get the same mechanism, which is immutable and costly to check.
_mechanism = lru_cache(maxsize=4)(from_json)


@dataclass(frozen=True)
class Request:
    """The server asks for a private message.

    Attributes:
        mechanism: by which to encode.
        number: of the round, counted by the server.
        names: of the arrays whose update is encoded, in order.
        evaluates: whether the server also asks for evaluations, which leave in clear. Only a warning depends on it.
    """

    mechanism: Mechanism
    number: int
    names: tuple[str, ...]
    evaluates: bool = False

    def clients(self, node: int) -> list[int] | None:
        """What names this node's message behind a public coin, as both sides know it; None where the coin is private.

        Raises:
            ValueError: the number of the round is beyond what can be named.
        """
        identifier = client_identifier(self.mechanism, node, self.number)
        return None if identifier is None else [identifier]

    def to_record(self) -> ConfigRecord:
        """The request as a record."""
        return ConfigRecord(
            {
                "mechanism": self.mechanism.to_json(),
                "digest": self.mechanism.digest(),
                "round": self.number,
                "arrays": list(self.names),
                "evaluates": self.evaluates,
            }
        )

    @classmethod
    def from_content(
        cls, content: RecordDict, max_frame_size: int | None = None, max_steps: int | None = None
    ) -> Request:
        """The request of a message; its mechanism is built anew and checked integer by integer.

        Args:
            content: of the message.
            max_frame_size: as in `sstq.from_json`.
            max_steps: as in `sstq.from_json`.

        Raises:
            ValueError: there is none, or it is not what it should be. No number of it is believed.
        """
        record = content.config_records.get(RECORD)
        if record is None:
            raise ValueError(
                f"the message holds no {RECORD!r} record: the server must wrap its strategy in SstqStrategy"
            )
        text, digest, number, names = (record.get(key) for key in ("mechanism", "digest", "round", "arrays"))
        if not isinstance(text, str):
            raise ValueError("the request holds no mechanism")
        mechanism = _mechanism(text, max_frame_size=max_frame_size, max_steps=max_steps)
        if mechanism.digest() != digest:
            raise ValueError("the mechanism is not the one of the request's digest")
        if type(number) is not int or number < 0:
            raise ValueError(f"the number of the round must be a non-negative integer, got {number!r}")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("the request must name the arrays whose update it wants")
        return cls(mechanism, number, tuple(str(name) for name in names), bool(record.get("evaluates", False)))


@dataclass(frozen=True)
class Answer:
    """A private message and what it answers.

    Attributes:
        payload: the bytes of one message.
        digest: of its mechanism.
        number: of the round.
    """

    payload: bytes
    digest: str
    number: int

    def to_record(self) -> ConfigRecord:
        """The answer as a record."""
        return ConfigRecord(
            {"message": self.payload, "digest": bytes.fromhex(self.digest), "round": self.number},
        )

    @classmethod
    def from_record(cls, record: ConfigRecord) -> Answer:
        """The answer of a record; ValueError unless it has the fields of one and no others."""
        if set(record) != {"message", "digest", "round"}:
            raise ValueError(f"an answer has the fields message, digest and round, got {', '.join(record)}")
        payload, digest, number = record["message"], record["digest"], record["round"]
        if not isinstance(payload, bytes) or not isinstance(digest, bytes) or type(number) is not int:
            raise ValueError("the fields of an answer must be bytes, bytes and an integer")
        return cls(payload, digest.hex(), number)
