"""Verify an sstq certificate without sstq, in rational arithmetic: verify_certificate.py CERTIFICATE [MECHANISM]."""

import hashlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path

DECIDES = {
    "sstq": "code",
    "frameunit": "row",
    "groupunit": "row",
    "vqsgd": "vertex",
    "sqkr": "bits",
}
TOTAL = 1 << 62
TERMS = 160
DIGITS = {*"0123456789"}
whole = lambda v: (
    [*map(whole, v)]
    if type(v) is list
    else int(v)
    if type(v) is str and set(v) <= DIGITS and v
    else v
)


def require(condition, problem):
    sys.exit(f"INVALID: {problem}") if not condition else None


# distinct names, nothing that is true or false, and decimal strings stand for whole numbers
def strict(pairs):
    require(
        len(dict(pairs)) == len(pairs) and all(type(v) is not bool for _, v in pairs),
        "not a certificate's JSON",
    )
    return {
        name: v if name in ("digest", "interval") else whole(v) for name, v in pairs
    }


# a partial sum of the series of e^x, 0 <= x < 160, and what a geometric series adds to it at most
def exp_bounds(x):
    top, bottom = 1, 1
    # 1 + x/n·(1 + x/(n + 1)·…), with integers: fractions would look for divisors
    for n in range(TERMS - 1, 0, -1):
        top, bottom = (
            n * x.denominator * bottom + x.numerator * top,
            n * x.denominator * bottom,
        )
    return Fraction(top, bottom), Fraction(top, bottom) + x**TERMS / math.factorial(
        TERMS - 1
    ) / (TERMS - x)


# of the weights of one outcome for two inputs, which must sum to 2^62 each
def largest_ratio(kind, size, weights):
    require(
        all(type(v) is int and v >= 0 for row in [[size], *weights] for v in row),
        "not a whole number",
    )
    if kind == "table":  # a row for each token, a column for each code
        require(all(sum(row) == TOTAL for row in weights), "a row does not sum to 2^62")
        return max(
            Fraction(max(column), min(column))
            for column in zip(*weights, strict=True)
            if any(column)
        )
    # one token of weight own, the others of weight other; or two sides
    if kind in ("flat", "half-space"):
        own, other = weights[0]
        require(
            own + other * (size - 1 if kind == "flat" else 1) == TOTAL,
            "the weights do not sum to 2^62",
        )
        return Fraction(max(own, other), min(own, other))
    # two-level: a word below t means inside
    sides = [s for k, t in weights for s in ((k, t), (size - k, TOTAL - t))]
    require(
        all(0 <= m <= TOTAL and w >= 0 and (m > 0) == (w > 0) for m, w in sides),
        "a side lacks members or weight",
    )
    return Fraction(
        max(w * -(-TOTAL // m) for m, w in sides if m),
        min(w * (TOTAL // m) for m, w in sides if m),
    )


def verify(
    format,
    version,
    mechanism,
    digest,
    epsilon,
    messages,
    total,
    decides,
    law,
    ratio,
    interval,
):
    require(
        (format, version, len(digest)) == ("sstq-certificate", 3, 64),
        "not a certificate of version 3",
    )
    require(
        all(len(end) < 64 and set(end) <= {*DIGITS, "."} for end in interval),
        "a wrong interval",
    )
    laws, (low, high) = (
        law["weights"] if law["kind"] == "either" else [law],
        map(Fraction, interval),
    )
    largest = max(largest_ratio(**x) for x in laws)  # a message tells its draw
    require(
        [*largest.as_integer_ratio()] == ratio, "the ratio is not that of the integers"
    )
    require(
        high < 99 and exp_bounds(low)[1] <= largest <= exp_bounds(high)[0],
        "a wrong interval",
    )
    require(
        0 < epsilon < 99 and largest <= exp_bounds(Fraction(epsilon))[0],
        "the ratio is above e^epsilon",
    )
    require(
        type(messages) is int
        and math.nextafter(total, 0) < messages * Fraction(epsilon) <= total,
        "a wrong total",
    )
    require(
        DECIDES.get(mechanism, decides) == decides,
        "another field of the message decides",
    )


sys.exit(f"usage: {__doc__}") if len(sys.argv) not in (2, 3) else None
# with exit code 1
sys.excepthook = lambda _kind, problem, _trace: print(
    f"INVALID: {problem!r}", file=sys.stderr
)
cert, *specs = (
    json.loads(Path(path).read_text("utf-8"), object_pairs_hook=strict)
    for path in sys.argv[1:]
)
verify(**cert)
for spec in specs:  # the law that the integers of a mechanism's file make
    law = {
        "kind": "table",
        "size": len(spec.get("weights", [])),
        "weights": spec.get("weights", []),
    }
    if "own" in spec:
        dense, size = (
            spec.get("variant") == "dense",
            (TOTAL - spec["own"]) // spec["other"] + 1,
        )
        law = (
            {"kind": "half-space", "size": spec["frame_size"]}
            if dense
            else {"kind": "flat", "size": size}
        )
        law["weights"] = [[spec["own"], spec["other"]]]
    if "thresholds" in spec or "threshold" in spec:
        size = (
            1 << spec["bits"]
            if spec.get("bits")
            else 2 * spec["frame_size"] * spec.get("blocks", 1)
        )
        pairs = (
            enumerate(spec["thresholds"])
            if "thresholds" in spec
            else [(spec["inside"], spec["threshold"])]
        )
        law = {"kind": "two-level", "size": size, "weights": [*map(list, pairs)]}
    if "share_size" in spec:
        only = law | {
            "size": spec["share_size"],
            "weights": [[spec["share_inside"], spec["share_threshold"]]],
        }
        law = {"kind": "either", "size": 2, "weights": [law, only]}
    digest = hashlib.sha256(Path(sys.argv[2]).read_bytes().strip()).hexdigest()
    mine = (
        {"messages": 1}
        | spec
        | {"digest": digest, "format": cert["format"], "law": law}
    )
    require(
        all(mine.get(n, cert[n]) == cert[n] for n in cert if n != "version"),
        "for another mechanism",
    )
print(
    "valid: one message spends an epsilon in",
    cert["interval"],
    "and at most",
    cert["epsilon"],
)
print(
    "a person sends",
    cert["messages"],
    "of them, without a shuffler at most",
    cert["total"],
    "in total",
)
print(
    f"for {sys.argv[2]}"
    if specs
    else "NOT CHECKED: whose integers these are; pass MECHANISM"
)
if cert["mechanism"] not in DECIDES:
    print(
        "NOT CHECKED: that the integers decide {decides!r} of {mechanism!r}".format(
            **cert
        )
    )
