"""What every mechanism must pass. Each check raises an AssertionError; mutants must make it.

z-tests use |z| < 6, which fails falsely with probability 2e-9 each; the number of tests in the whole suite is below
5,000, so the suite fails falsely less than once in 100,000 runs. (The estimates are sums of many bounded or
light-tailed terms, for which the normal approximation is good out there.)
"""

import math

import numpy as np
from scipy.stats import beta

from sstq.mechanisms.trial_vectors import structured_vectors
from tests.contract.cases import encode, groups_of, held

Z = 6.0


def contract_vectors(mechanism, seed):
    """Structured vectors of norm clip, a short one and zero."""
    named = structured_vectors(mechanism.dim, np.random.default_rng(seed))
    vectors = {name: mechanism.clip * rows[0] for name, rows in named.items()}
    vectors["short"] = 0.3 * vectors["gaussian"]
    vectors["zero"] = np.zeros(mechanism.dim)
    return vectors


def fresh_coin(mechanism, seed):
    """The mechanism behind another public coin; expectations are over that coin, too."""
    return mechanism.with_seed(seed)


def estimates(mechanism, x, seed, count):
    """The estimates of so many people who hold x, (count, d): the mean of each person's messages."""
    decoded = mechanism.decode(encode(mechanism, np.tile(x, (count, 1)), seed))
    return decoded.reshape(mechanism.messages, count, -1).mean(axis=0)


def check_expectation(mechanism, x, seed, count):
    """The mean of the estimates is what the mechanism states: x itself if it says that it is unbiased."""
    decoded = estimates(mechanism, x, seed, count)
    own = held(mechanism, x[None])
    stated, target = mechanism._row_error(own)[0], mechanism._estimated(own)
    if mechanism.unbiased:
        assert np.linalg.norm(stated - target) <= 1e-3 * mechanism.clip, "it says that it is unbiased"
    directions = np.concatenate([target, np.random.default_rng(seed).standard_normal((3, target.shape[1]))])
    for direction in directions:
        projected = decoded @ direction
        margin = Z * projected.std() / math.sqrt(count) + 1e-6 * mechanism.clip * np.linalg.norm(direction)
        assert abs(projected.mean() - stated[0] @ direction) <= margin, "the mean is not the stated one"


def check_error(mechanism, x, seed, count):
    """The mean squared error of the estimates is the expected one."""
    decoded = estimates(mechanism, x, seed, count)
    squared = np.sum((decoded - mechanism._estimated(held(mechanism, x[None]))) ** 2, axis=1)
    total = mechanism.expected_mse(x, groups=groups_of(mechanism, 1)).total
    margin = Z * squared.std() / math.sqrt(count) + 1e-6 * (total + mechanism.clip**2)
    assert abs(squared.mean() - total) <= margin, "the squared error is not the expected one"


def privacy_lower_bound(mechanism, x, other, seed, count, failure=1e-9):
    """A lower bound of ε from messages alone, wrong with probability `failure`.

    Half of the messages choose the event that tells x and `other` apart best, the other half test it (Clopper–Pearson,
    Bonferroni over the statistics). Events are single messages where there are few of them, and otherwise intervals of
    the estimate's projections on x, on `other` and on their difference.
    """
    rng = np.random.default_rng(seed)
    # The first slot: ε is that of one message.
    samples = [
        encode(mechanism, np.tile(v, (2 * count, 1)), rng, group)[: 2 * count] for v, group in ((x, 0), (other, 1))
    ]
    x, other = (mechanism._estimated(held(mechanism, v[None], group))[0] for v, group in ((x, 0), (other, 1)))
    statistics = list(zip(*(_statistics(mechanism, x, other, messages) for messages in samples), strict=True))
    share = failure / len(statistics) / 2
    best = -math.inf
    for values in statistics:
        kinds = np.unique(np.concatenate(values))
        chosen = [np.array([np.sum(v[:count] == kind) for kind in kinds]) for v in values]
        event = kinds[np.argmax(np.abs(np.log((chosen[0] + 1) / (chosen[1] + 1))))]
        second, first = sorted(int(np.sum(v[count:] == event)) for v in values)
        low = beta.ppf(share, first, count - first + 1) if first else 0.0
        high = beta.ppf(1 - share, second + 1, count - second)
        best = max(best, math.log(low / high) if low > 0 else -math.inf)
    return best


def _statistics(mechanism, x, other, messages):
    """Each message as a small integer, in one way or in several."""
    if mechanism.message_bits <= 12 and mechanism.coin == "private":
        return [_as_integers(mechanism, messages)]
    decoded = mechanism.decode(messages)
    statistics = []
    for direction in (x - other, x, other):
        scale = (np.linalg.norm(direction) or 1.0) * mechanism.decoding_scale
        statistics.append(np.clip(np.floor(decoded @ direction / scale * 8), -40, 40).astype(np.int64))
    return statistics


def _as_integers(mechanism, messages):
    combined = np.zeros(len(messages), dtype=np.int64)
    for field, column in zip(mechanism.layout.fields, messages.columns, strict=True):
        for entry in column.reshape(len(messages), -1).T:
            combined = (combined << field.bits) | entry.astype(np.int64)
    return combined


def check_privacy(mechanism, seed, count):
    """No pair of inputs can be told apart better than ε allows, as far as samples can tell."""
    vectors = contract_vectors(mechanism, seed)
    spike = vectors["spike"]
    pairs = {
        "gaussian and its opposite": (vectors["gaussian"], -vectors["gaussian"]),
        "spike and its opposite": (spike, -spike),
        "spike and another spike": (spike, np.roll(spike, 1)),
        "spike and zero": (spike, vectors["zero"]),
    }
    for name, (x, other) in pairs.items():
        bound = privacy_lower_bound(mechanism, x, other, seed, count)
        assert bound <= mechanism.epsilon, f"{name}: ε is at least {bound:.2f}, not {mechanism.epsilon}"


class CountingBits:
    """A source that notes how many words are asked for."""

    simulated = True

    def __init__(self, rng):
        self._rng = rng
        self.counts = []

    def words(self, count):
        self.counts.append(count)
        return self._rng.integers(0, 1 << 64, size=count, dtype=np.uint64)


def check_words(mechanism, seed):
    """Every input takes the same number of random words."""
    vectors = contract_vectors(mechanism, seed)
    vectors["huge"] = np.full(mechanism.dim, 1e300)
    clients = np.array([3], dtype=np.uint64) if mechanism.coin == "public" else None
    totals = set()
    for x in vectors.values():
        source = CountingBits(np.random.default_rng(seed))
        mechanism._encode_rows(held(mechanism, x[None]), clients, source, None)
        totals.add(sum(source.counts))
    assert len(totals) == 1, f"the number of random words depends on the data: {sorted(totals)}"
