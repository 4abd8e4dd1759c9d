"""Verify an sstq certificate without sstq, in rational arithmetic: verify_certificate.py CERTIFICATE [MECHANISM]."""

# ruff: noqa: D103, SIM115, T201
import hashlib
import json
import sys
from fractions import Fraction
from itertools import accumulate

TOTAL, TERMS = 1 << 62, 160


def require(condition, problem):
    sys.exit(f"INVALID: {problem}") if not condition else None


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
    sides = []  # two-level: a first word below the threshold means inside; a second word picks a member uniformly
    for inside, threshold in weights:
        for members, weight in ((inside, threshold), (size - inside, TOTAL - threshold)):
            require(members >= 0 <= weight and (members > 0) == (weight > 0), "a side without members or weight")
            sides += [(weight * (TOTAL // members), weight * -(-TOTAL // members))] if members else []
    return Fraction(max(most for _, most in sides), min(least for least, _ in sides))


def law_of(spec):  # the law that the integers of a mechanism's file make
    if "thresholds" in spec or "threshold" in spec:
        size = 1 << spec["bits"] if spec["bits"] else 2 * spec["frame"]["size"]
        pairs = enumerate(spec["thresholds"]) if "thresholds" in spec else [(spec["inside"], spec["threshold"])]
        return {"kind": "two-level", "size": size, "weights": [list(pair) for pair in pairs]}
    if "matrix" in spec["channel"]:
        return {"kind": "table", "size": len(spec["channel"]["matrix"]), "weights": spec["channel"]["matrix"]}
    size, own, other = (spec["channel"][name] for name in ("size", "own", "other"))
    kind, size = ("half-space", spec["frame"]["size"]) if spec.get("variant") == "dense" else ("flat", size)
    return {"kind": kind, "size": size, "weights": [[own, other]]}


cert, *specs = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:3])
ratio, epsilon, (low, high) = largest_ratio(**cert["law"]), Fraction(cert["epsilon"]), map(Fraction, cert["interval"])
require(ratio == Fraction(*cert["ratio"]), "the ratio is not that of the integers")
require(low >= 0 and high < 99 and exp_bounds(low)[1] <= ratio <= exp_bounds(high)[0], "a wrong interval")
require(epsilon > 0 and ratio <= exp_bounds(epsilon)[0], "the ratio is above e^epsilon")
for spec in specs:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    mine, stated = [digest, spec["epsilon"], law_of(spec)], [cert[name] for name in ("digest", "epsilon", "law")]
    require(mine == stated, "it is not of this mechanism")
print("valid: epsilon is in", cert["interval"], "and at most", cert["epsilon"])
