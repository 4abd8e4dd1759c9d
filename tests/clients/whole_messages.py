"""Test vectors of whole messages: from the mechanism's JSON, a vector and the secret words to the bits that leave."""

import functools
import json

import numpy as np

import sstq
from sstq.accounting.ledger import price
from sstq.exactness import TOTAL
from tests.clients.written import FOLDER, doubles, hashed_singles, hashed_words, singles, streamed, words, words_around
from tests.scripted import ScriptedBits
from tests.solved import as_written

_LARGEST = 2**64 - 1
_TINY, _HUGE = np.float32(1e-45), np.finfo(np.float32).max


def _as_in(name, solved):
    """Mechanisms as the file of that name has them."""
    file = FOLDER / name
    texts = json.loads(file.read_text(encoding="utf-8"))["mechanisms"] if file.exists() else {}
    return {label: as_written(mechanism, texts.get(label)) for label, mechanism in solved.items()}


@functools.cache
def mechanisms():
    """What a client must be able to do."""
    solved = {
        "frameunit, d = 3": sstq.FrameUnit(3, 2.0, frame_seed=7),
        "frameunit, d = 1": sstq.FrameUnit(1, 1.0, frame_seed=2**64 - 1),
        "frameunit, one row": sstq.FrameUnit(1, 1.0, frame_size=1),
        "frameunit, d = N": sstq.FrameUnit(8, 0.01, frame_size=8, clip=0.25, frame_seed=3),
        "frameunit, many frames": sstq.FrameUnit(23, 20.0, frames=40, clip=3.0, frame_seed=2**53 + 1),
        "frameunit, d = 300": sstq.FrameUnit(300, 3.0, frames=2, frame_seed=1),
        "frameunit, two mixings": sstq.FrameUnit(5000, 3.0, frames=3, frame_seed=5),
        "frameunit, d = 25,450": sstq.FrameUnit(25_450, 3.0, frames=1024, clip=0.5, frame_seed=6),
        "frameunit, three messages": sstq.FrameUnit(3, 0.7, frames=40, messages=3, frame_seed=7),
        "groupunit, two messages": sstq.GroupUnit(3, 1.0, groups=5, frames=20, messages=2, frame_seed=9),
        "groupunit, a block per group": sstq.GroupUnit(4, 3.0, groups=10, frame_seed=7),
        "groupunit, one block": sstq.GroupUnit(3, 1.0, groups=5, blocks=1, share_people=0.0, frame_seed=7),
        "groupunit, uneven blocks": sstq.GroupUnit(5, 2.0, groups=7, blocks=2, share_people=0.0, frames=3, clip=2.0),
        "groupunit, shares": sstq.GroupUnit(3, 1.0, groups=5, frame_seed=9),
        "groupunit, many shares": sstq.GroupUnit(2, 0.5, groups=1000, blocks=1, frames=30, share_people=0.4),
        "sstq, d = 1": sstq.SSTQ(1, 1.0, bits=1, frame_seed=1),
        "sstq, d = 3": sstq.SSTQ(3, 2.0, bits=2, frame_seed=7),
        "sstq, hardly redundant": sstq.SSTQ(64, 3.0, bits=3, frame_size=64, clip=2.0, codebook="uniform"),
        "sstq, d = 100": sstq.SSTQ(100, 0.5, bits=5, frame_seed=2**64 - 1),
        "sstq, d = 300": sstq.SSTQ(300, 3.0, bits=4, clip=0.1, frame_seed=5),
        "sstq, d = 25,450": sstq.SSTQ(25_450, 3.0, bits=4, frame_seed=6),
    }
    return _as_in("messages.json", solved)


@functools.cache
def public_coins():
    """What a client needs where the collector knows who sends: the public coin."""
    solved = {
        "frameunit, public frames": sstq.FrameUnit(3, 2.0, frames=40, coin="public", frame_seed=7),
        "frameunit, 3 bits": sstq.FrameUnit(3, 2.0, bits=3, frame_seed=7),
        "frameunit, 8 bits of 17": sstq.FrameUnit(100, 2.0, bits=8, frames=5, frame_size=2**17, frame_seed=7),
        "groupunit, public frames": sstq.GroupUnit(3, 1.0, groups=5, frames=20, coin="public", frame_seed=9),
        "sstq, public index": sstq.SSTQ(3, 2.0, bits=2, coin="public", frame_seed=7),
    }
    return _as_in("public-coin.json", solved)


def corner_vectors(dim, label):
    """Vectors that clients get wrong: name and numbers."""
    dense = hashed_singles(f"{label}/{dim}", dim)
    spike = np.zeros(dim, np.float32)
    spike[dim // 2] = -0.5
    return {
        "dense": dense,
        "zero": np.zeros(dim, np.float32),
        "minus zero": np.full(dim, -0.0, np.float32),
        "constant": np.full(dim, 0.25, np.float32),
        "spike": spike,
        "short": dense * np.float32(2**-10),
        "subnormal": np.where(np.arange(dim) % 2 == 0, _TINY, -3 * _TINY).astype(np.float32),
        "long": dense * np.float32(1000),
        "huge": np.where(np.arange(dim) % 3 == 0, -_HUGE, _HUGE / 2).astype(np.float32),
    }


def encode(mechanism, x, group, drawn, client=None):
    """The fields of the message that those words make."""
    held = mechanism._records(x[None], None if group is None else [group])
    clients = None if client is None else np.array([client], dtype=np.uint64)
    columns = mechanism._encode_rows(held, clients, ScriptedBits(drawn), None)
    return {field.name: int(column[0]) for field, column in zip(mechanism.layout.fields, columns, strict=True)}


def _drawn(mechanism, label, number):
    """Words of a message: corners of the draw first, then any."""
    drawn = hashed_words(f"{label}/{number}", mechanism.words_each)
    if number == 0:
        return np.zeros_like(drawn)
    if number == 1:
        return np.full_like(drawn, _LARGEST)
    choice = getattr(mechanism, "choice", None)
    if number <= 5 and choice is not None:
        drawn[1] = words_around(choice.threshold)[number - 2]
    elif number <= 5:
        drawn[2] = words_around(mechanism.channel.own)[number - 2]
    elif number == 6 and choice is not None:
        # The last place of the opposite rows.
        drawn[1:3] = _LARGEST, -(-TOTAL * (choice.inside - 1) // (choice.size - choice.inside)) << 2
    return drawn


def _vectors(mechanism, label):
    if mechanism.dim > 100:
        scale = -23 - mechanism.dim.bit_length() // 2
        return {"streamed": streamed(mechanism.dim, 11, scale), "streamed, long": streamed(mechanism.dim, 12, 20)}
    found = {name: (x, {"x": singles(x)}) for name, x in corner_vectors(mechanism.dim, label).items()}
    if mechanism.dim > 8:
        return {name: found[name] for name in ("dense", "spike", "huge")}
    return found


def _cases(label, mechanism, client):
    cases, number = [], 0
    for name, (x, stated) in _vectors(mechanism, label).items():
        for _ in range(2 if mechanism.dim < 300 and name != "dense" else 8):
            group = None if mechanism.groups is None else number * 7 % mechanism.groups
            drawn = _drawn(mechanism, label, number)
            who = None if client is None else client + number
            fields = encode(mechanism, x, group, drawn, who)
            case = {"mechanism": label, "about": name} | stated
            case |= {} if group is None else {"group": group}
            case |= {} if who is None else {"client": str(who)}
            packed = mechanism.layout.pack(tuple(np.array([value], dtype=np.uint64) for value in fields.values()))
            cases.append(case | {"words": words(drawn), "fields": fields, "packed": packed.hex()})
            number += 1
    return cases


def messages():
    """Single messages, and several packed together."""
    cases = [case for label, mechanism in mechanisms().items() for case in _cases(label, mechanism, None)]
    batches = []
    for label, mechanism in mechanisms().items():
        own = [list(case["fields"].values()) for case in cases if case["mechanism"] == label][:9]
        columns = tuple(np.array(column, dtype=np.uint64) for column in zip(*own, strict=True))
        batches.append({"mechanism": label, "messages": own, "packed": mechanism.layout.pack(columns).hex()})
    texts = {label: mechanism.to_json() for label, mechanism in mechanisms().items()}
    slots = [_slots(label, mechanism) for label, mechanism in mechanisms().items() if mechanism.messages > 1]
    return {"mechanisms": texts, "cases": cases, "batches": batches, "slots": slots}


def _slots(label, mechanism):
    """All messages of two people, slot by slot, with the words in the order in which they are drawn."""
    people = 2
    x = np.stack([corner_vectors(mechanism.dim, label)[name] for name in ("dense", "spike")])
    groups = None if mechanism.groups is None else [1, 3]
    drawn = hashed_words(f"{label}/slots", people * mechanism.messages * mechanism.words_each)
    rows = mechanism._records(x, groups)
    sent = mechanism._encode_slots(rows, ScriptedBits(drawn), None, None, mechanism.messages)
    case = {"mechanism": label, "x": [singles(row) for row in x]} | ({} if groups is None else {"groups": groups})
    messages = np.stack([sent.column(field.name) for field in mechanism.layout.fields], axis=1)
    return case | {"words": words(drawn), "messages": messages.astype(int).tolist()}


def public_coin():
    """Messages of clients that both sides name."""
    texts = {label: mechanism.to_json() for label, mechanism in public_coins().items()}
    cases = [case for label, mechanism in public_coins().items() for case in _cases(label, mechanism, 2**40)]
    return {"mechanisms": texts, "cases": cases}


def agreements():
    """What follows from the JSON of a mechanism, and its digest."""
    cases = []
    for label, mechanism in mechanisms().items():
        fields = [[field.name, field.bits] for field in mechanism.layout.fields]
        case = {"mechanism": label, "json": mechanism.to_json(), "digest": mechanism.digest()}
        case |= {"fields": fields, "message_bits": mechanism.message_bits, "words": mechanism.words_each}
        case["rounds"] = mechanism.frame.rounds
        if mechanism.messages > 1:
            case |= {"messages": mechanism.messages, "epsilon_of_all": doubles(price(mechanism))}
        cases.append(case)
    return {"cases": cases, "numbers": _canonical_numbers()}


def _canonical_numbers():
    """Numbers as RFC 8785 writes them, which is as JavaScript does."""
    import rfc8785

    given = (
        0.0,
        -0.0,
        1.0,
        1e21,
        1e-7,
        1e-6,
        123456789012345680000.0,
        0.1,
        5e-324,
        1.7976931348623157e308,
        1 / 3,
        1e23,
    )
    return [{"double": doubles(number), "text": rfc8785.dumps(number).decode()} for number in given]
