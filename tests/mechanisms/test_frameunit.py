import math
import re
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc, erf, ndtri
from scipy.stats import chi2

import sstq
from sstq import kernels
from sstq.baselines.privunit import PrivUnitG
from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.inputs.trial_vectors import structured_vectors
from sstq.mechanisms.frameunit.alignment import RowDraw, best_draw, top_half_normals
from sstq.mechanisms.frameunit.frameunit import FrameUnit
from sstq.mechanisms.sphere import mean_chi, random_directions
from sstq.mechanisms.two_level_draw import whole_budget
from sstq.randomness import streams
from tests.contract.cases import reread
from tests.scripted import largest_ratio, law_of


def some_vectors(dim, seed=0):
    """Unit vectors of all kinds, two spikes among them, shorter ones and zero."""
    rows = np.concatenate(
        list(structured_vectors(dim, np.random.default_rng(seed)).values())
    )
    two = np.where(np.arange(dim) < 2, 1.0, 0.0)[None] / min(dim, 2) ** 0.5
    return np.concatenate(
        [rows, -rows, two, 0.3 * rows[:3], 0.7 * two, np.zeros((1, dim))]
    )


def output_distribution(mechanism, x, flip, frame=0):
    """The exact distribution of the row, given the word that may flip the vector and the one that chooses the frame.

    Frames are chosen without looking at the data, so the row given the frame is all that tells.
    """
    law = law_of(mechanism, mechanism.choice, mechanism.clip * x, flip, frame)
    return [law.get(row, Fraction(0)) for row in range(mechanism.choice.size)]


def all_distributions(mechanism):
    return {
        tuple(output_distribution(mechanism, x, flip))
        for x in some_vectors(mechanism.dim)
        for flip in (0, 2**64 - 1)
    }


SMALL = [
    (1, {"frame_size": 1}),
    (1, {"frame_size": 2}),
    (3, {"frame_size": 4}),
    (3, {"frame_size": 8}),
]
SMALL += [
    (16, {"frame_size": 16}),
    (3, {"frame_size": 8, "frames": 5}),
    (3, {"frame_size": 8, "frames": 40}),
]


@pytest.mark.parametrize(
    ("epsilon", "dim", "options"),
    [*((3.0, *small) for small in SMALL), *((e, *SMALL[3]) for e in (0.1, 16.0))],
)
def test_the_output_distribution_is_private_for_every_pair(epsilon, dim, options):
    mechanism = FrameUnit(dim, epsilon, frame_seed=3, **options)
    # Given the flip, and so for every mixture over flips: for any pair of vectors.
    distributions = all_distributions(mechanism)
    assert all(sum(distribution) == 1 for distribution in distributions)
    ratio = largest_ratio(distributions)
    assert ratio <= exp_lower(epsilon)
    assert log_upper(ratio) <= mechanism.privacy_loss() <= epsilon
    assert log_upper(ratio) > epsilon - 1e-9
    for distribution in distributions:
        # Exactly k rows are inside, whatever the ties.
        assert (
            sum(p > Fraction(1, mechanism.choice.size) for p in distribution)
            == mechanism.choice.inside
        )


def test_a_mechanism_that_never_sends_an_opposite_fails_the_enumeration(monkeypatch):
    pick = kernels.pick_signed_rows

    def one_sided(*arguments):
        *others, inside, places = arguments
        return pick(
            *others, inside, np.where(places < 2 * inside, places % inside, places)
        )

    monkeypatch.setattr(kernels, "pick_signed_rows", one_sided)
    with pytest.raises(ZeroDivisionError):
        largest_ratio(all_distributions(FrameUnit(3, 1.0, frame_size=8)))


def test_a_mechanism_with_a_larger_threshold_fails_the_enumeration():
    mutant = FrameUnit(3, 1.0, frame_size=8)
    object.__setattr__(mutant.choice, "threshold", mutant.choice.threshold + 1000)
    assert largest_ratio(all_distributions(mutant)) > exp_lower(1.0)


@pytest.mark.parametrize("size", [1, 2, 5, 40, 256])
def test_sums_of_order_statistics_are_their_integrals(size):
    counts = np.arange(1, size + 1)[:: max(1, size // 7)]

    def integral(k):
        def term(y):
            inside = 1.0 if k == size else betainc(size - k, k, erf(y / 2**0.5))
            return size * y * (2 / np.pi) ** 0.5 * math.exp(-y * y / 2) * inside

        return quad(
            term,
            0,
            12,
            limit=500,
            epsabs=1e-12,
            epsrel=1e-12,
            points=[-ndtri(k / size / 2)],
        )[0]

    np.testing.assert_allclose(
        top_half_normals(size, counts), [integral(int(k)) for k in counts], rtol=1e-9
    )


@pytest.mark.parametrize("bits", [20, 25, 30])
def test_sums_of_order_statistics_of_many_approach_the_density(bits):
    size = 1 << bits
    counts = np.array([size // 100, size // 8, size // 2, size - 1])
    # 2N·φ(z) with a first correction: h″(q)·Var(q)/2, where h(q) = 2φ(z(q)), h″ = −1/(2φ(z)) and Var = q(1 − q)/N.
    q = counts / size
    height = 2 * np.exp(-(ndtri(q / 2) ** 2) / 2) / (2 * np.pi) ** 0.5
    corrected = size * height - q * (1 - q) / (2 * height)
    np.testing.assert_allclose(
        top_half_normals(size, counts), corrected, rtol=1e-9 if bits == 20 else 1e-12
    )
    np.testing.assert_allclose(
        top_half_normals(size, counts), size * height, rtol=1e-4 / 2 ** (bits - 20)
    )
    assert mean_chi(size) == pytest.approx((size - 0.5) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 6.0, 10.0, 20.0])
@pytest.mark.parametrize("size", [1, 4, 256])
def test_no_number_of_rows_inside_is_better(epsilon, size):
    best = RowDraw(best_draw(epsilon, size), 1, size).alignment
    others = [
        RowDraw(whole_budget(epsilon, 2 * size, k), 1, size).alignment
        for k in range(1, size + 1)
    ]
    assert best == pytest.approx(max(others), rel=1e-12)


@pytest.mark.parametrize(("dim", "size"), [(2, 4), (3, 8), (6, 256), (256, 256)])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_the_stated_error_is_that_of_all_rows(dim, size, epsilon, seed):
    """An independent slow reference: the signed rows one by one, sorted by score, for both flips."""
    mechanism = FrameUnit(dim, epsilon, clip=0.5, frame_size=size, frame_seed=seed)
    rows = (
        mechanism.frame.rows(np.repeat(np.arange(size), 2))
        * np.tile([1.0, -1.0], size)[:, None]
    )
    estimates = rows * (0.5 / mechanism.alignment)
    vectors = 0.5 * some_vectors(dim, seed)
    units = mechanism.unit_ball(vectors)
    own, other = mechanism.choice.probabilities
    for unit, mean, variance in zip(units, *mechanism.row_error(vectors), strict=True):
        length = min(np.linalg.norm(unit.astype(np.float64)), 1.0)
        direction = random_directions(
            unit[None], np.array([2**64 - 1], dtype=np.uint64)
        )[0]
        probabilities = np.zeros(2 * size)
        for sign, weight in ((1, (1 + length) / 2), (-1, (1 - length) / 2)):
            c = mechanism.frame.analyze((sign * direction[None]).astype(np.float32))[0]
            best = np.argsort(-np.abs(c), kind="stable")[: mechanism.choice.inside]
            part = np.full(2 * size, other)
            part[2 * best + (c[best] < 0)] = own
            probabilities += weight * part
        expected = probabilities @ estimates
        np.testing.assert_allclose(mean, expected, atol=1e-12 * np.abs(estimates).max())
        power = probabilities @ np.sum(estimates**2, axis=1)
        assert variance == pytest.approx(power - expected @ expected, rel=1e-10)


def structured(dim):
    rng = np.random.default_rng(1)
    vectors = {name: rows[0] for name, rows in structured_vectors(dim, rng).items()}
    spikes = {
        f"{count} spikes": np.where(np.arange(dim) < count, count**-0.5, 0.0)
        for count in (2, 4)
        if count <= dim
    }
    return vectors | spikes


@pytest.mark.slow
@pytest.mark.parametrize(
    "dim",
    [
        2,
        300,
        *(
            pytest.param(dim, marks=pytest.mark.soak)
            for dim in (3, 64, 256, 1024, 5000)
        ),
    ],
)
def test_alignment_over_frames_is_that_of_a_uniform_direction(dim):
    """Within 1 % on every structured input at any ε; frames are fixed, so this is no random test."""
    mechanisms = [FrameUnit(dim, epsilon) for epsilon in (0.5, 1.0, 3.0, 6.0, 10.0)]
    names, vectors = zip(*structured(dim).items(), strict=True)
    unit = np.array(vectors, dtype=np.float32)
    rounds = 500 if dim <= 300 else 300 if dim <= 1024 else 60
    totals = np.zeros((len(mechanisms), len(unit)))
    # mix_seed of every round, at once.
    for seed in streams.words_of(
        5, "round", np.arange(rounds, dtype=np.uint64)
    ).tolist():
        frame = mechanisms[0].with_seed(seed).frame
        tops = np.cumsum(
            np.sort(np.abs(frame.analyze(unit)), axis=1)[:, ::-1],
            axis=1,
            dtype=np.float64,
        )
        for total, mechanism in zip(totals, mechanisms, strict=True):
            own, other = mechanism.choice.probabilities
            total += (own - other) * tops[:, mechanism.choice.inside - 1]
    for total, mechanism in zip(totals, mechanisms, strict=True):
        ratios = dict(zip(names, total / rounds / mechanism.alignment, strict=True))
        # At ε = 10 a single row may be inside, whose score scatters by 10 %.
        tolerance = 0.01 if mechanism.epsilon < 10 else 0.01 + 0.3 * rounds**-0.5
        assert all(abs(ratio - 1) < tolerance for ratio in ratios.values()), (
            mechanism.epsilon,
            ratios,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "length",
    [0.4, *(pytest.param(norm, marks=pytest.mark.soak) for norm in (0.0, 1.0))],
)
def test_unbiased_over_frames(length, seed):
    """The mean over 400 frames of the exact mean of each; 6 z-tests at |z| < 6, and 1 % for what mixing leaves."""
    mechanism = FrameUnit(6, 2.0, clip=0.5)
    rounds = 400
    x = 0.5 * length * structured(6)["gaussian"]
    means = np.array(
        [
            mechanism.with_seed(sstq.mix_seed(seed, r)).row_error(x[None])[0][0]
            for r in range(rounds)
        ]
    )
    margin = 6 * means.std(axis=0) / rounds**0.5 + 0.01 * np.linalg.norm(x)
    assert np.all(np.abs(means.mean(axis=0) - x) <= margin)
    assert mechanism.unbiased == "over frames"
    assert not mechanism.unbiased


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 6.0, 10.0])
def test_the_error_is_the_optimum(epsilon):
    """Within 2 % of PrivUnitG at d = 10,000 (measured: 0.02 %, and 0.33 % at ε = 10); at ε = 3, 0.75·d."""
    dim = 10_000
    mechanism = FrameUnit(dim, epsilon)
    x = np.full(dim, 0.01)
    optimum = PrivUnitG(dim, epsilon).expected_mse(x).total
    over_frames = 1 / mechanism.alignment**2 - 1
    assert over_frames == pytest.approx(optimum, rel=0.02 if epsilon == 10 else 1e-3)
    assert mechanism.expected_mse(x).total == pytest.approx(over_frames, rel=0.01)
    assert mechanism.message_bits == 15
    if epsilon == 3:
        # Measured: 0.7425.
        assert over_frames / dim == pytest.approx(0.7425, abs=1e-4)
        assert mechanism.expected_mse(x).total / dim <= 0.75


@pytest.mark.parametrize(
    ("dim", "options", "bits"),
    [
        (1, {}, 9),
        (256, {}, 9),
        (257, {}, 10),
        (10**6, {}, 21),
        (10_000, {"frames": 1000}, 15 + 10),
    ],
)
def test_bits_on_the_wire(dim, options, bits):
    assert FrameUnit(dim, 3.0, **options).message_bits == bits


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "epsilon"), [(1, 0.01), (1, 20.0), (10**6, 20.0)])
def test_stable_for_all_budgets_and_dimensions(dim, epsilon):
    mechanism = FrameUnit(dim, epsilon, clip=0.1)
    assert epsilon - 1e-8 < mechanism.privacy_loss() <= epsilon
    x = np.zeros((3, dim), dtype=np.float32)
    x[1] = 1e30
    x[2, -1] = -1e-30
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(x, rng=1))
    estimate = aggregator.mean()
    assert np.isfinite(estimate.value).all()
    assert np.isfinite(estimate.stderr).all()
    error = mechanism.expected_mse(np.zeros(dim))
    assert error.variance > 0
    assert np.isfinite(error.total)


def test_the_largest_frames_are_solved():
    mechanism = FrameUnit(2**25, 3.0)
    assert (mechanism.alignment**-2 - 1) / 2**25 == pytest.approx(0.7425, abs=1e-4)
    assert 3.0 - 1e-8 < mechanism.privacy_loss() <= 3.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: {"dim": 300}, "frame_size must be"),
        (lambda _: {"dim": 11}, "alignment must be"),
        (lambda _: {"epsilon": 0.6}, "above epsilon = 0.6"),
        (
            lambda m: {"threshold": str(m.choice.threshold + 1000)},
            "above epsilon = 0.7",
        ),
        (lambda m: {"inside": m.choice.inside - 1}, "alignment must be"),
        (
            lambda _: {"inside": 256 + 10, "threshold": str(TOTAL // 2)},
            r"inside must be an integer in \[1, 256\]",
        ),
        # Exactly private, but there would be nothing to decode, or nothing but the opposite.
        (lambda _: {"inside": 256, "threshold": str(TOTAL // 2)}, "alignment must be"),
        (
            lambda _: {"inside": 256, "threshold": str(TOTAL // 5 * 2)},
            "alignment must be",
        ),
        (lambda m: {"alignment": m.alignment * 1.001}, "alignment must be"),
        (lambda _: {"frame_size": 257}, "frame_size must be a power of two"),
        (lambda _: {"frame_size": 512}, "alignment must be"),
        (lambda _: {"frame_seed": str(2**64)}, "frame_seed must be"),
    ],
)
def test_tampered_json_is_refused(change, message):
    mechanism = FrameUnit(10, 0.7)
    with pytest.raises(ValueError, match=message):
        reread(mechanism, **change(mechanism))


def test_a_million_clients_of_dimension_256():
    """At d = 256, n = 10^6, G = 2^16, ε = 3: the error of the mean within 10 % of the optimum (measured: 4 %)."""
    x = np.full(256, 1 / 16)
    single = FrameUnit(256, 3.0)
    assert single.frames_for(10**6) == 2**16
    optimum = PrivUnitG(256, 3.0).expected_mse(x, clients=10**6).total
    assert single.expected_mse(x, clients=10**6).total > 1000 * optimum
    for name in ("gaussian", "spike", "2 spikes"):
        error = FrameUnit(256, 3.0, frames=2**16).expected_mse(
            structured(256)[name], clients=10**6
        )
        assert error.total < 1.1 * optimum
        assert error.bias2 < error.variance / 20


@pytest.mark.slow
def test_the_mean_over_many_frames(seed):
    """20,000 clients on 2^12 frames against the stated error: one χ² test on both sides, false failures below 1e-6."""
    dim = 64
    clients = 20_000
    mechanism = FrameUnit(dim, 3.0, frames=2**12)
    x = structured(dim)["gaussian"]
    messages = mechanism.encode(np.broadcast_to(x, (clients, dim)), rng=seed)
    whole = mechanism.aggregator()
    halves = mechanism.aggregator()
    whole.update(messages)
    halves.update(messages[8000:])
    other = mechanism.aggregator()
    other.update(messages[:8000])
    halves.merge(other)
    estimate = whole.mean()
    np.testing.assert_array_equal(estimate.value, halves.mean().value)
    error = np.sum((estimate.value - x) ** 2)
    expected = mechanism.expected_mse(x, clients=clients).total
    # The error over its expectation is χ² with d degrees of freedom over d, and the stated one is right to 5 %.
    assert (
        chi2.ppf(2e-7, dim) / dim - 0.05
        < error / expected
        < chi2.ppf(1 - 2e-7, dim) / dim + 0.05
    )
    assert np.sum(estimate.stderr**2) == pytest.approx(expected, rel=0.1)
    single = FrameUnit(dim, 3.0)
    aggregator = single.aggregator()
    aggregator.update(single.encode(np.broadcast_to(x, (clients, dim)), rng=seed))
    assert np.sum((aggregator.mean().value - x) ** 2) > 10 * expected


@pytest.mark.parametrize("options", [{"frames": 4}, {"frames": 50}])
def test_the_sparse_aggregator_is_the_mean_of_the_decoded_messages(
    options, seed, tmp_path
):
    mechanism = FrameUnit(9, 3.0, clip=2.0, **options)
    x = np.random.default_rng(seed).standard_normal((3000, 9)) / 2
    messages = mechanism.encode(x, rng=seed)
    aggregator = mechanism.aggregator()
    aggregator.update(messages[:1234])
    aggregator.save(tmp_path / "part")
    aggregator = mechanism.load_aggregator(tmp_path / "part")
    aggregator.update(messages[1234:])
    estimate = aggregator.mean()
    decoded = mechanism.decode(messages)
    np.testing.assert_allclose(
        estimate.value, decoded.mean(axis=0), atol=1e-10 * np.abs(decoded).max()
    )
    noise = np.sqrt(estimate.stderr**2 - estimate.frame_bias**2 / 9)
    np.testing.assert_allclose(
        noise, decoded.std(axis=0, ddof=1) / 3000**0.5, rtol=1e-6
    )


def test_the_sparse_state_does_not_grow_with_the_frames_and_is_checked(tmp_path, seed):
    mechanism = FrameUnit(9, 3.0, frames=2**30)
    aggregator = mechanism.aggregator()
    for _ in range(3):
        aggregator.update(mechanism.encode(np.ones((50, 9)), rng=seed))
    aggregator.save(tmp_path / "state")
    assert (tmp_path / "state").stat().st_size < 20_000
    assert mechanism.load_aggregator(tmp_path / "state").mean().count == 150
    stored = dict(np.load(tmp_path / "state"))
    whole = stored["state"]
    damages = [
        {"state": np.array([change])}
        for change in (
            [0, -1, 2],
            [-5, 1, 0],
            [2**40, 1, 0],
            [5, 2**62, 2**62],
            [0, 0, 0],
        )
    ]
    damages += [{"count": np.array(count)} for count in (0, 149, 2**32)]
    damages += [
        {"state": whole[::-1]},
        {"state": whole[:0]},
        {"state": whole[:, :2]},
        {"state": whole[:0, :0]},
    ]
    for damage in damages:
        np.savez(tmp_path / "damaged.npz", **stored | damage)
        with pytest.raises(ValueError, match=r"damaged|does not hold"):
            mechanism.load_aggregator(tmp_path / "damaged.npz")


def test_a_dense_state_is_checked_against_its_count(tmp_path):
    mechanism = FrameUnit(9, 3.0)
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(np.ones((50, 9)), rng=1))
    aggregator.save(tmp_path / "state")
    stored = dict(np.load(tmp_path / "state"))
    for count in (5, 51, 2**32):
        np.savez(tmp_path / "damaged.npz", **stored | {"count": np.array(count)})
        with pytest.raises(ValueError, match="another number"):
            mechanism.load_aggregator(tmp_path / "damaged.npz")


def test_the_mean_says_when_the_bias_matters():
    for options, advice in (({}, "frames=2"), ({"frames": 3}, "frames=4")):
        mechanism = FrameUnit(1000, 3.0, **options)
        most = mechanism.clients_allowed
        aggregator = mechanism.aggregator()
        aggregator.update(mechanism.encode(np.zeros((most, 1000)), rng=1))
        assert aggregator.mean().note == ""
        aggregator.update(mechanism.encode(np.zeros((2, 1000)), rng=2))
        note = aggregator.mean().note
        assert note == mechanism.note(most + 2)
        assert re.search(f"exceeds 20 % of the error .* pass {advice}", note)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 21.0}, "epsilon must be"),
        ({"frame_size": 2}, r"frame_size must be an integer in \[4, "),
        ({"frame_size": 300}, "power of two"),
        ({"frames": 0}, "frames must be an integer"),
        ({"frames": 2.0}, "frames must be an integer"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FrameUnit(**{"dim": 4, "epsilon": 1.0} | options)
