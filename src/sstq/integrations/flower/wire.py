"""The wire format: the server's request for a private message, and the answer that carries it.

Both are a ConfigRecord called "sstq" in a Flower message. The request accompanies the model and holds the mechanism
as JSON, its digest, the number of the round and the names of the arrays that make up the vector. The answer is alone
(except for metrics that the app shares by name) and holds the message's bytes, the digest and the number of the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from flwr.app import ConfigRecord, RecordDict

from sstq.checks import check_number
from sstq.mechanisms import Mechanism, from_json
from sstq.mechanisms.records import RecordMechanism

__all__ = ["METRICS", "RECORD", "TOO_MUCH", "Answer", "Request", "refuse_other_than_vectors"]

RECORD = "sstq"
METRICS = "metrics"
TOO_MUCH = "epsilon = "
"""How a refusal begins if the node cannot spend this ε, on one answer or in total: it will refuse again."""

# Many nodes of one process get the same mechanism, which is immutable and costly to check.
_mechanism = lru_cache(maxsize=4)(from_json)


@dataclass(frozen=True)
class Request:
    """The server's request for a private message.

    Attributes:
        mechanism: the mechanism to encode with.
        number: the number of the round, counted by the server.
        names: the names of the arrays whose update is encoded, in order.
        evaluates: whether the server also asks for evaluations, which are not private. Only a warning depends on it.
    """

    mechanism: Mechanism
    number: int
    names: tuple[str, ...]
    evaluates: bool = False

    def clients(self, node: int) -> list[int] | None:
        """Return the identifier of this node's message for a public coin, known to both sides; None if it is private.

        It is (2^32·number + node) mod 2^64, another one in every round. Adding modulo 2^64 is one-to-one, so two nodes
        never share an identifier in a round.

        Raises:
            ValueError: the number of the round is beyond what can be named.
        """
        if self.mechanism.coin == "private":
            return None
        number = check_number("the number of the round", self.number, 0, 2**32 - 1, integer=True)
        return [(2**32 * number + node) % 2**64]

    def to_record(self) -> ConfigRecord:
        """Return the request as a record."""
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
        """Read the request of a message; its mechanism is rebuilt and checked integer by integer.

        Args:
            content: the content of the message.
            max_frame_size: as in `sstq.from_json`.
            max_steps: as in `sstq.from_json`.

        Raises:
            ValueError: there is none, or it is not valid. None of its numbers is trusted.
        """
        record = content.config_records.get(RECORD)
        if record is None:
            raise ValueError(f"the message has no {RECORD!r} record: the server must wrap its strategy in SstqStrategy")
        text, digest, number, names = (record.get(key) for key in ("mechanism", "digest", "round", "arrays"))
        if not isinstance(text, str):
            raise ValueError("the request has no mechanism")
        mechanism = _mechanism(text, max_frame_size=max_frame_size, max_steps=max_steps)
        refuse_other_than_vectors(mechanism)
        if mechanism.digest() != digest:
            raise ValueError("the mechanism does not match the request's digest")
        if type(number) is not int or number < 0:
            raise ValueError(f"the number of the round must be a non-negative integer, got {number!r}")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("the request must name the arrays to update")
        return cls(mechanism, number, tuple(str(name) for name in names), bool(record.get("evaluates", False)))


def refuse_other_than_vectors(mechanism: Mechanism) -> None:
    """Raise ValueError for a mechanism that is not for model updates: vectors without private groups."""
    if isinstance(mechanism, RecordMechanism):
        raise ValueError(f"mechanism must be for vectors, got {mechanism.name}; use frameunit")
    if mechanism.groups is not None:
        raise ValueError(f"mechanism must be without private groups, got {mechanism.name}; use frameunit")


@dataclass(frozen=True)
class Answer:
    """The answer to a request: a private message.

    Attributes:
        payload: the bytes of one message.
        digest: the digest of its mechanism.
        number: the number of the round.
    """

    payload: bytes
    digest: str
    number: int

    def to_record(self) -> ConfigRecord:
        """Return the answer as a record."""
        return ConfigRecord({"message": self.payload, "digest": bytes.fromhex(self.digest), "round": self.number})

    @classmethod
    def from_record(cls, record: ConfigRecord) -> Answer:
        """Read an answer from a record; ValueError unless it has exactly the fields of one."""
        if set(record) != {"message", "digest", "round"}:
            raise ValueError(f"an answer must have the fields message, digest and round, got {', '.join(record)}")
        payload, digest, number = record["message"], record["digest"], record["round"]
        if not isinstance(payload, bytes) or not isinstance(digest, bytes) or type(number) is not int:
            raise ValueError("the fields of an answer must be bytes, bytes and an integer")
        return cls(payload, digest.hex(), number)
