"""Test vectors of surveys and of Frequencies: a person's answers and the secret words to the bits that leave."""

import functools
import json
import math

import numpy as np
import rfc8785

import sstq
from sstq.exactness import TOTAL
from tests.clients.written import FOLDER, hashed_words, words, words_around
from tests.scripted import ScriptedBits
from tests.solved import as_written

_LARGEST = 2**64 - 1
_COUNTRIES = ("AT", "CH", "Köln “😀”")
_PEOPLE = {
    "usual": {"country": "CH", "used": ["search", "share"], "age": 41.7, "stars": 5, "v": [0.3, -0.1, 2.5]},
    "nothing": {"country": None, "used": None, "age": None, "stars": None, "v": None},
    "nothing chosen, zeros": {"country": "", "used": [], "age": 0, "stars": 0, "v": [0, 0, 0]},
    "unknown labels": {"country": "ch", "used": ["mail"], "age": -1e300, "stars": 3.5, "v": [1e200, -1e200, 1e199]},
    "some unknown": {"country": _COUNTRIES[2], "used": [None, "export"], "age": 110.5, "stars": 6, "v": [1e-170, 0, 0]},
    "other types": {"country": 1, "used": "search", "age": "41", "stars": "5", "v": [1, 2]},
    "tiny": {"country": "AT", "used": ["search", "search"], "age": 5e-324, "stars": True, "v": [0.1, None, 0]},
    "left out": {"age": 55.25, "country": "AT"},
}


@functools.cache
def mechanisms():
    """Every type of question and both ways of several choices; weights make the draws the same on every machine."""
    country, age = sstq.Choice(_COUNTRIES), sstq.Number(0, 110.5, bins=22)
    v, used = sstq.Vector(3, clip=2.0), sstq.MultiChoice(["search", "export", "share"])
    everything = {"country": country, "used": used, "age": age, "stars": sstq.Choice([1, 2, 3, 4, 5]), "v": v}
    more = {"age by country": sstq.By("country", "age"), "v by stars": sstq.By("stars", "v")}
    # One label that is drawn is the better way for a large ε.
    drawn = sstq.MultiChoice(["search"])
    solved = {
        "frequencies, two": sstq.Frequencies(2, 1.0),
        "frequencies, ten": sstq.Frequencies(10, 1.0),
        "frequencies, affine": sstq.Frequencies(23, 1.0),
        "frequencies, 25 bits": sstq.Frequencies(27, 0.25),
        "frequencies, pairs of many": sstq.Frequencies(8000, 8.3),
        "frequencies, randomized response": sstq.Frequencies(10, 8.0),
        "frequencies, 2^20, three messages": sstq.Frequencies(2**20, 0.5, messages=3),
        "survey, one question": sstq.Survey(2.0, {"country": country}),
        "survey, choices and numbers": sstq.Survey(1.0, {"country": country, "age": age, "used": drawn}, messages=2),
        "survey, everything": sstq.Survey(2.0, everything | more, weights=dict.fromkeys([*everything, *more], 1.0)),
        "survey, a rare question": sstq.Survey(8.0, {"v": v, "age": age}, weights={"v": 1e-9, "age": 1e9}),
        "survey, many labels": sstq.Survey(1.0, {"used": sstq.MultiChoice(range(99)), "v": sstq.Vector(3, clip=1e-90)}),
        "survey, long messages": sstq.from_json(_text(_long(questions=2))),
    }
    file = FOLDER / "surveys.json"
    texts = json.loads(file.read_text(encoding="utf-8"))["mechanisms"] if file.exists() else {}
    return {label: as_written(mechanism, texts.get(label)) for label, mechanism in solved.items()}


def _long(questions):
    """A survey with messages of 56 bits for an answer, and so many questions beside it."""
    asked = {f"age {number}": sstq.Number(0, 1, bins=2) for number in range(questions - 1)} | {"age": sstq.Number(0, 1)}
    asked |= {"country": sstq.Choice(range(499)), "age by country": sstq.By("country", "age")}
    found = json.loads(sstq.Survey(2.0, asked, weights=dict.fromkeys(asked, 1.0)).to_json())
    # A frame larger and more of them than the library would take.
    by = sstq.GroupUnit(1, 2.0, groups=500, clip=0.5, blocks=500, frame_size=2**16, frames=2**30)
    part = {name: value for name, value in json.loads(by.to_json()).items() if name not in ("format", "version")}
    return found | {"parts": [*found["parts"][:-1], part | {"items": 1}]}


def encode(mechanism, value, drawn):
    """The fields of the message that those words make: what a device sends, which refuses nothing."""
    if isinstance(mechanism, sstq.Frequencies):
        held = np.array([[float(value)]])
    else:
        held = mechanism._mended({name: [given] for name, given in value.items()}, ScriptedBits())
    columns = mechanism._encode_rows(held, None, ScriptedBits(drawn), None)
    return {field.name: int(column[0]) for field, column in zip(mechanism.layout.fields, columns, strict=True)}


def _drawn(mechanism, label, number):
    """Words of a message: corners of the draws first, then any."""
    drawn = hashed_words(f"{label}/{number}", mechanism.words_each)
    if number < 2:
        return np.full_like(drawn, (0, _LARGEST)[number])
    if isinstance(mechanism, sstq.Frequencies):
        drawn[1] = words_around(mechanism.draw.threshold)[number % 4]
        return drawn
    ends = np.cumsum([0, *map(int, mechanism.draws)], dtype=object)
    place = number % len(mechanism.draws)
    # Every question in turn: its first word, its last, or one in between.
    low, high = int(ends[place]) << 2, (int(ends[place + 1]) << 2) - 1
    drawn[4] = (low, high, low + int(drawn[4]) % (high - low + 1))[number // len(mechanism.draws) % 3]
    return drawn


def _cases(label, mechanism):
    if isinstance(mechanism, sstq.Frequencies):
        given = {f"category {number}": number for number in (0, 1, mechanism.categories // 2, mechanism.categories - 1)}
    else:
        given = {name: _asked(mechanism, record) for name, record in _PEOPLE.items()}
    cases, number = [], 0
    for name, value in given.items():
        for _ in range(max(6, len(getattr(mechanism, "draws", ())))):
            drawn = _drawn(mechanism, label, number)
            fields = encode(mechanism, value, drawn)
            packed = mechanism.layout.pack(tuple(np.array([each], dtype=np.uint64) for each in fields.values()))
            case = {"mechanism": label, "about": name, "value": value, "words": words(drawn)}
            cases.append(case | {"fields": {name: str(each) for name, each in fields.items()}, "packed": packed.hex()})
            number += 1
    return cases


def _asked(mechanism, record):
    """What a person's record has of the columns of a survey; one at least, for Python to count people by."""
    return {name: value for name, value in record.items() if name in mechanism.questions} or {
        next(iter(mechanism.questions)): None
    }


def _refused():
    """Documents that a client must refuse, whatever signs them."""
    everything = json.loads(mechanisms()["survey, everything"].to_json())
    simple = json.loads(mechanisms()["survey, choices and numbers"].to_json())
    ten, affine = (json.loads(mechanisms()[f"frequencies, {name}"].to_json()) for name in ("ten", "affine"))
    questions, parts, draws = everything["questions"], everything["parts"], [int(draw) for draw in everything["draws"]]

    def changed(document, member, place, **values):
        entries = [dict(entry) if entry is not None else None for entry in document[member]]
        entries[place] = entries[place] | values
        return document | {member: entries}

    def without(entries, place, name):
        return [{k: v for k, v in e.items() if at != place or k != name} for at, e in enumerate(entries)]

    twice = everything | {
        "questions": [*questions[:6], questions[5] | {"name": "again"}],
        "parts": [*parts[:6], parts[5]],
    }
    more = [draws[0] + 1, *draws[1:]]
    shifted = [draws[0] + (1 << 50), draws[1] - (1 << 50), *draws[2:]]
    huge = int(simple["parts"][0]["threshold"]) + 2**20
    cases = {
        "two questions of one name": changed(everything, "questions", 3, name="country"),
        "the same By twice": twice,
        "an unknown type": changed(everything, "questions", 0, type="ranking"),
        "a By of a By": changed(everything, "questions", 6, group="age by country"),
        "a By of an unknown question": changed(everything, "questions", 5, value="weight"),
        "a number by several choices": changed(everything, "questions", 5, group="used"),
        "labels twice": changed(everything, "questions", 0, labels=["AT", "CH", "AT"]),
        "labels of two types": changed(everything, "questions", 0, labels=["AT", "CH", 3]),
        "a label for no answer": changed(everything, "questions", 0, labels=["AT", "CH", "no answer"]),
        "no labels": changed(everything, "questions", 0, labels=[]),
        "a lone surrogate": changed(everything, "questions", 0, labels=["AT", "CH", "\ud800"]),
        "one more label than the part has": changed(everything, "questions", 0, labels=["AT", "CH", "DE", "FR"]),
        "bounds the wrong way round": changed(everything, "questions", 2, low=111),
        "other bounds than those of the part": changed(everything, "questions", 2, low=-1),
        "one bin": changed(everything, "questions", 2, bins=1),
        "an unknown member of a question": changed(everything, "questions", 2, step=5),
        "an empty name": changed(everything, "questions", 2, name=""),
        "another clip than that of the part": changed(everything, "questions", 4, clip=3),
        "no questions": everything | {"questions": [], "parts": [], "draws": []},
        "a part less": everything | {"parts": parts[:6]},
        "a draw less": everything | {"draws": everything["draws"][:6]},
        "draws beyond 2^62": everything | {"draws": [str(draw) for draw in more]},
        "a draw of zero": everything | {"draws": ["0", str(draws[0] + draws[1]), *everything["draws"][2:]]},
        "draws as numbers": everything | {"draws": draws},
        "draws that are not those of the weights": everything | {"draws": [str(draw) for draw in shifted]},
        "weights of another question": everything | {"weights": {**everything["weights"], "weight": 1}},
        "a part with another epsilon": changed(everything, "parts", 0, epsilon=1),
        "a part with a larger epsilon": everything | {"parts": [_part_of(4.0), *parts[1:]]},
        "a part that spends more": changed(simple, "parts", 0, threshold=str(huge)),
        "a part for another question": everything | {"parts": [parts[2], *parts[1:]]},
        "a part with a public coin": changed(everything, "parts", 4, coin="public"),
        "a part of several messages": changed(everything, "parts", 0, messages=2),
        "a part of more items": changed(everything, "parts", 0, items=2),
        "a part without items": everything | {"parts": without(parts, 0, "items")},
        "an unknown member": everything | {"bounds": None},
        "no people": everything | {"people": 0},
        "messages of 63 bits": _long(questions=64),
        "frequencies of another prime": affine | _sets(29, affine["inside"]),
        "frequencies without a prime": affine | _sets(24, affine["inside"]) | {"categories": 24},
        "frequencies of one category per set and a prime": ten | _sets(11, 1),
        "frequencies of fewer sets inside": ten | _sets(ten["size"], ten["inside"] - 1),
        "frequencies of one set more": ten | _sets(ten["size"] + 1, ten["inside"]),
        "frequencies of sets of most categories": ten | _sets(ten["size"], ten["size"] - ten["inside"]),
        "frequencies of more sets than 2^25": ten | _sets(math.comb(28, 13), math.comb(27, 12)) | {"categories": 28},
        "frequencies that spend more": ten | {"threshold": str(int(ten["threshold"]) + 2**20)},
        "frequencies against the own category": ten | {"threshold": str(TOTAL // 100)},
        "frequencies that hardly favour another category": ten
        | {"threshold": str(ten["inside"] * TOTAL // ten["size"] - 2**40)},
        "frequencies of one category": ten | {"categories": 1},
    }
    return [{"about": about, "json": _text(document)} for about, document in cases.items()]


def _sets(size, inside):
    """So many sets, of which so many hold the own category; the draw favours that by little."""
    return {"size": size, "inside": inside, "threshold": str(inside * TOTAL // size + 2**45)}


def _part_of(epsilon):
    """The part of the question about countries in a survey with another ε."""
    return json.loads(sstq.Survey(epsilon, {"country": sstq.Choice(_COUNTRIES)}).to_json())["parts"][0]


def _text(document):
    """Canonical JSON; a lone surrogate, which it cannot have, is escaped."""
    try:
        return rfc8785.dumps(document).decode()
    except (UnicodeEncodeError, rfc8785.CanonicalizationError):
        return json.dumps(document, separators=(",", ":"), sort_keys=True)


def surveys():
    """Messages of surveys and of categories, their mechanisms, several messages of a person, and what is refused."""
    cases = [case for label, mechanism in mechanisms().items() for case in _cases(label, mechanism)]
    agreements = []
    for label, mechanism in mechanisms().items():
        fields = [[field.name, field.bits] for field in mechanism.layout.fields]
        agreements.append({"mechanism": label, "digest": mechanism.digest(), "fields": fields})
    texts = {label: mechanism.to_json() for label, mechanism in mechanisms().items()}
    slots = [_slots(label, mechanism) for label, mechanism in mechanisms().items() if mechanism.messages > 1]
    return {"mechanisms": texts, "agreements": agreements, "cases": cases, "slots": slots, "refused": _refused()}


def _slots(label, mechanism):
    """All messages of two people, slot by slot: each slot draws a question of its own."""
    people = [_PEOPLE["usual"], _PEOPLE["nothing"]]
    given = [_asked(mechanism, record) for record in people] if mechanism.name == "survey" else [1, 7]
    drawn = hashed_words(f"{label}/slots", 2 * mechanism.messages * mechanism.words_each)
    held = {name: [record[name] for record in given] for name in given[0]} if mechanism.name == "survey" else given
    rows = mechanism._records_of(held, strict=False) if mechanism.name == "survey" else np.array(given, float)[:, None]
    sent = mechanism._encode_slots(rows, ScriptedBits(drawn), None, None, mechanism.messages)
    messages = np.stack([sent.column(field.name) for field in mechanism.layout.fields], axis=1)
    return {"mechanism": label, "values": given, "words": words(drawn), "messages": messages.astype(int).tolist()}
