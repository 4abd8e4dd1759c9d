"""Test vectors of the secret draws and of packing: what decides which message is sent, and its bits."""

import numpy as np

from sstq.exactness import TOTAL
from sstq.mechanisms.groupunit.mechanism import GroupUnit
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.messages.layouts import Field, Layout
from sstq.randomness.secret import channel_words, unit_interval
from sstq.scalar.channels import flat_channel
from sstq.scalar.codebooks import optimized_codebook, stochastic_round, uniform_codebook
from tests.clients.written import doubles, hashed_words, singles, words

_LARGEST = 2**64 - 1


def words_around(integer):
    """The words whose 62 bits are an integer, least and largest, and the neighbours of both."""
    low, high = integer << 2, integer << 2 | 3
    return [word for word in (low - 1, low, high, high + 1) if 0 <= word <= _LARGEST]


def two_level():
    """The place of a candidate, those inside first."""
    draws = [
        whole_budget(2.0, 512, 111),
        whole_budget(0.01, 2, 1),
        whole_budget(20.0, 2**31, 5),
        whole_budget(3.0, 7, 2),
    ]
    cases = []
    for draw in draws:
        firsts = [0, _LARGEST, *words_around(draw.threshold), *map(int, hashed_words(f"two-level/{draw.size}", 2))]
        for first in firsts:
            side = draw.inside if first >> 2 < draw.threshold else draw.size - draw.inside
            # Around the least word of the last place.
            border = -(-TOTAL * (side - 1) // side)
            seconds = [0, _LARGEST, *words_around(border), int(hashed_words(f"second/{first}", 1)[0])]
            for second in seconds[:3] if first in (0, _LARGEST) else seconds:
                cases.append(_two_level_case(draw, first, second))
    return {"cases": cases}


def _two_level_case(draw: KClosest, first, second):
    pair = np.array([[first, second]], dtype=np.uint64)
    stated = {"size": draw.size, "inside": draw.inside, "threshold": str(draw.threshold)}
    return stated | {"words": words(pair), "place": int(draw.places(pair)[0])}


def groups():
    """Which groups share a block, what is sent for a place, and the codes of people who send their group only."""
    blocks, shares = [], []
    for groups_, of in ((10, 10), (5, 1), (7, 2), (7, 4)):
        mechanism = GroupUnit(2, 2.0, groups=groups_, blocks=of, share_people=0.0, frame_size=256)
        rows = np.concatenate([np.arange(groups_)[:, None], np.ones((groups_, 2))], axis=1).astype(np.float32)
        block, padded = mechanism._in_block(rows)
        placed = [int(np.flatnonzero(row)[0]) // 2 for row in padded]
        blocks.append({"groups": groups_, "blocks": mechanism.blocks, "block": block.tolist(), "place": placed})
    for groups_, frames, epsilon, size in (
        (5, 16, 1.0, 256),
        (1000, 30, 0.5, 4096),
        (40, 20, 3.0, 512),
        (2, 2, 1.0, 256),
    ):
        mechanism = GroupUnit(2, epsilon, groups=groups_, blocks=1, frames=frames, frame_size=size, frame_seed=7)
        sets = mechanism.share_sets
        first, last = mechanism.vector_frames, frames - 1
        stated = {
            "groups": groups_,
            "frames": frames,
            "share_people": doubles(0.1),
            "candidates": mechanism.choice.size,
        }
        stated |= {"seed": "7", "share_size": sets.draw.size, "share_inside": sets.draw.inside}
        stated |= {"share_threshold": str(sets.draw.threshold), "vector_frames": first}
        stated |= {"multipliers": sets.multipliers, "slots": sets.slots}
        cases = []
        for number in range(8):
            drawn = hashed_words(f"shares/{groups_}/{number}", 3)
            if number == 0:
                drawn = np.array([_LARGEST, 0, _LARGEST], dtype=np.uint64)
            group, frame = number * 131 % groups_, (first, last)[number % 2]
            code = sets.encode(np.array([group]), drawn[None], np.array([frame]))[0]
            cases.append({"group": group, "frame": frame, "words": words(drawn), "row": int(code)})
        shares.append(stated | {"cases": cases})
    return {"blocks": blocks, "other_blocks": _other_blocks(), "shares": shares}


def _other_blocks():
    """What is sent for places beyond the own block, from 2N candidates in each block."""
    mechanism = GroupUnit(1, 2.0, groups=3, blocks=3, frame_size=4, share_people=0.0)
    cases = []
    for group in range(3):
        for place in (8, 9, 15, 16, 23):
            # A word outside whose place is this one.
            members = mechanism.choice.size - mechanism.choice.inside
            second = -(-TOTAL * (place - mechanism.choice.inside) // members) << 2
            drawn = np.array([0, _LARGEST, second], dtype=np.uint64)
            row = _row_of(mechanism, group, drawn)
            cases.append({"block_size": 8, "blocks": 3, "block": group, "place": place, "row": row})
    return cases


def _row_of(mechanism, group, drawn):
    from tests.scripted import ScriptedBits

    held = mechanism._held(np.ones((1, 1), np.float32), [group])
    return int(mechanism._encode_rows(held, None, ScriptedBits(drawn), None)[0][0])


def flat():
    """The code that the flat channel sends for a token."""
    cases = []
    for bits, epsilon in ((1, 0.01), (2, 2.0), (4, 3.0), (12, 20.0)):
        channel = flat_channel(bits, epsilon)
        integers = {channel.own, channel.own + channel.other, channel.own + 2 * channel.other}
        tried = {0, _LARGEST, *(word for own in integers if own < TOTAL for word in words_around(own))}
        for number, word in enumerate(sorted(tried | set(map(int, hashed_words(f"flat/{bits}", 4))))):
            token = (0, channel.size - 1, 1, channel.size // 2)[number % 4]
            integer = channel_words(np.array([word], dtype=np.uint64))
            code = channel.sample(np.array([token]), integer)[0]
            stated = {"size": channel.size, "own": str(channel.own), "other": str(channel.other), "token": token}
            cases.append(stated | {"word": words(word), "code": int(code)})
    return {"cases": cases}


def rounding():
    """Stochastic rounding of a coordinate to a codeword."""
    cases = []
    books = {
        "uniform": uniform_codebook(2),
        "optimized": optimized_codebook(3, 2.0),
        "zeros": optimized_codebook(5, 0.5),
    }
    for name, book in books.items():
        for y in (-1.0, 1.0, 0.0, -0.0, 0.3, -0.7, 1e-40, -1e-45, float(np.float32(book.values[1]))):
            coordinate = np.array([y], np.float32)
            for word in (0, _LARGEST, *map(int, hashed_words(f"{name}/{y}", 2))):
                uniform = unit_interval(np.array([word], dtype=np.uint64))
                token = stochastic_round(book.values, coordinate.astype(np.float64), uniform)[0]
                cases.append({"codebook": name, "y": singles(coordinate), "word": words(word), "token": int(token)})
    return {"codebooks": {name: doubles(book.values) for name, book in books.items()}, "cases": cases}


def packing():
    """Messages as bits without gaps, from the fields of each."""
    layouts = {
        "one field": [Field("row", 9, 512)],
        "two fields": [Field("row", 11, 1500), Field("frame", 6, 40)],
        "code and index": [Field("code", 2, 4), Field("index", 16, 65_536)],
        "no bits in a field": [Field("code", 1, 2), Field("index", 0, 1)],
        "widest": [Field("row", 31, 2**31), Field("frame", 30, 2**30)],
    }
    cases = []
    for name, fields in layouts.items():
        for count in (1, 2, 3, 9):
            raw = hashed_words(f"{name}/{count}", count * len(fields)).reshape(count, len(fields))
            columns = tuple((raw[:, i] % np.uint64(field.limit)).astype(field.dtype) for i, field in enumerate(fields))
            packed = Layout(tuple(fields)).pack(columns).hex()
            stated = {"about": name, "fields": [[field.name, field.bits] for field in fields]}
            messages = [[int(column[i]) for column in columns] for i in range(count)]
            cases.append(stated | {"messages": messages, "packed": packed})
    return {"cases": cases}
