"""Verify an sstq certificate without sstq, in rational arithmetic: verify_certificate.py CERTIFICATE [MECHANISM]."""

# ruff: noqa: D103, E731, SIM115
import hashlib
import json
import sys
from fractions import Fraction
from itertools import accumulate

TOTAL, TERMS, DIGITS = 1 << 62, 160, {*"0123456789"}
whole = lambda v: [*map(whole, v)] if type(v) is list else int(v) if type(v) is str and set(v) <= DIGITS and v else v


def require(condition, problem):
    sys.exit(f"INVALID: {problem}") if not condition else None


def strict(pairs):  # distinct names, nothing that is true or false, and decimal strings stand for whole numbers
    require(len(dict(pairs)) == len(pairs) and all(type(v) is not bool for _, v in pairs), "not a certificate's JSON")
    return {name: v if name in ("digest", "interval") else whole(v) for name, v in pairs}


def exp_bounds(x):  # a partial sum of the series of e^x, 0 <= x < 160, and what a geometric series adds to it at most
    terms = list(accumulate(range(1, TERMS), lambda term, n: term * x / n, initial=Fraction(1)))
    return sum(terms), sum(terms) + terms[-1] * x / (TERMS - x)


def largest_ratio(kind, size, weights):  # of the weights of one outcome for two inputs, which must sum to 2^62 each
    require(all(type(v) is int and v >= 0 for row in [[size], *weights] for v in row), "a weight is not a whole number")
    if kind == "table":  # a row for each token, a column for each code
        require(all(sum(row) == TOTAL for row in weights), "a row does not sum to 2^62")
        return max(Fraction(max(column), min(column)) for column in zip(*weights, strict=True) if any(column))
    if kind in ("flat", "half-space"):  # one token of weight own, the others of weight other; or two sides
        own, other = weights[0]
        require(own + other * (size - 1 if kind == "flat" else 1) == TOTAL, "the weights do not sum to 2^62")
        return Fraction(max(own, other), min(own, other))
    sides = [s for k, t in weights for s in ((k, t), (size - k, TOTAL - t))]  # two-level: a word below t means inside
    require(all(0 <= m <= TOTAL and w >= 0 and (m > 0) == (w > 0) for m, w in sides), "a side lacks members or weight")
    return Fraction(max(w * -(-TOTAL // m) for m, w in sides if m), min(w * (TOTAL // m) for m, w in sides if m))


cert, *specs = (json.load(open(path, encoding="utf-8"), object_pairs_hook=strict) for path in sys.argv[1:3])
require(all(len(end) < 64 and set(end) <= {*"0123456789."} for end in cert["interval"]), "a wrong interval")
laws = cert["law"]["weights"] if cert["law"]["kind"] == "either" else [cert["law"]]  # a message tells its draw
ratio, (low, high, epsilon) = max(largest_ratio(**x) for x in laws), map(Fraction, (*cert["interval"], cert["epsilon"]))
require(ratio == Fraction(*cert["ratio"]), "the ratio is not that of the integers")
require(high < 99 and exp_bounds(low)[1] <= ratio <= exp_bounds(high)[0], "a wrong interval")
require(0 < epsilon < 99 and ratio <= exp_bounds(epsilon)[0], "the ratio is above e^epsilon")
for spec in specs:  # the law that the integers of a mechanism's file make
    law = {"kind": "table", "size": len(spec.get("weights", [])), "weights": spec.get("weights", [])}
    if "own" in spec:
        dense, size = spec.get("variant") == "dense", (TOTAL - spec["own"]) // spec["other"] + 1
        law = {"kind": "half-space", "size": spec["frame_size"]} if dense else {"kind": "flat", "size": size}
        law["weights"] = [[spec["own"], spec["other"]]]
    if "thresholds" in spec or "threshold" in spec:
        size = 1 << spec["bits"] if spec.get("bits") else 2 * spec["frame_size"] * spec.get("blocks", 1)
        pairs = enumerate(spec["thresholds"]) if "thresholds" in spec else [(spec["inside"], spec["threshold"])]
        law = {"kind": "two-level", "size": size, "weights": [*map(list, pairs)]}
    if "share_size" in spec:
        only = law | {"size": spec["share_size"], "weights": [[spec["share_inside"], spec["share_threshold"]]]}
        law = {"kind": "either", "size": 2, "weights": [law, only]}
    mine = [hashlib.sha256(open(sys.argv[2], "rb").read().strip()).hexdigest(), spec["epsilon"], law]
    require(mine == [cert[name] for name in ("digest", "epsilon", "law")], "it is for another mechanism")
print("valid: epsilon is in", cert["interval"], "and at most", cert["epsilon"])
