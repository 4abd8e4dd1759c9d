import functools

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.accounting import compose, rounds_allowed
from sstq.cli import app
from sstq.mechanisms import FrameUnit
from sstq.planning import plan
from sstq.planning.candidates import _without_frames, best_candidate


def typical(rng, dim, count=None):
    rows = rng.standard_normal((count or 1, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows if count else rows[0]


# --- predictions ---

PLANNED = {
    "one frame": {"dim": 800, "clients": 40, "epsilon": 3.0},
    "many frames": {"dim": 100, "clients": 1000, "epsilon": 3.0},
    "few bits, less epsilon": {"dim": 200, "clients": 300, "epsilon": 6.0, "bits": 11},
    "another clip": {"dim": 100, "clients": 400, "epsilon": 1.0, "clip": 0.5},
    "flat SSTQ": {"dim": 16, "clients": 500, "epsilon": 3.0, "bits": 7},
    "one dimension": {"dim": 1, "clients": 200, "epsilon": 1.0},
}


@functools.cache
def planned(case):
    return plan(**PLANNED[case])


CHOSEN = {"flat SSTQ": "sstq", "one dimension": "vqsgd"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"dim": 25_450, "clients": 10_000, "epsilon": 1.0, "bits": 16, "clip": 0.1},
        {"dim": 3000, "clients": 10_000, "epsilon": 3.0},
    ],
)
def test_the_prediction_agrees_with_the_exact_error_of_the_mechanism(options):
    # Exact for one frame and one vector, where the prediction is an average over both: they differ by a per cent or so.
    found = plan(**options)
    x = found.request.clip * typical(np.random.default_rng(5), found.mechanism.dim)
    exact = found.build().expected_mse(x, clients=found.clients)
    assert found.standard_deviation**2 == pytest.approx(exact.variance, rel=0.01)
    assert found.bias**2 == pytest.approx(
        exact.bias2, rel=0.1, abs=1e-9 * found.request.clip**2
    )


@pytest.mark.parametrize(
    ("dim", "epsilon", "clients"), [(256, 1.0, 1), (5000, 6.0, 10**6), (2, 3.0, 10**6)]
)
def test_frames_are_those_that_frameunit_recommends(dim, epsilon, clients):
    best = best_candidate(dim, epsilon, clients, None)
    assert best.name == "frameunit"
    assert (
        best.frames == best.wanted_frames == FrameUnit(dim, epsilon).frames_for(clients)
    )
    assert best.mse == pytest.approx(best.build().typical_error(clients).total)
    assert best.bits == best.build().message_bits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "bits", "clients"), [(2, None, 1), (2, None, 10**6), (1000, 12, 1)]
)
def test_what_is_left_out_of_a_quick_search_could_not_win(dim, bits, clients):
    for epsilon in (0.02, 3.0, 20.0):
        best = best_candidate(dim, epsilon, clients, bits)
        assert all(
            best.mse <= one.mse
            for one in _without_frames(dim, epsilon, clients, bits, 0.0)
        )


# --- the four questions ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"dim": 300, "epsilon": 1.0, "clip": 3.0},
        {"dim": 20, "epsilon": 3.0, "bits": 8},
    ],
)
def test_the_error_of_so_many_clients_needs_as_many(options):
    error = plan(clients=137, **options).relative_error
    back = plan(target_error=error, **options)
    assert (back.clients, back.solved_for) == (137, "clients")
    assert back.relative_error == pytest.approx(error, rel=1e-8)
    assert plan(clients=136, **options).relative_error > error


@pytest.mark.slow
def test_the_error_of_an_epsilon_needs_that_epsilon():
    options = {"dim": 1000, "clients": 5000, "bits": 12}
    error = plan(epsilon=2.0, **options).relative_error
    back = plan(target_error=error, **options)
    assert back.solved_for == "epsilon"
    assert back.epsilon == pytest.approx(2.0, rel=2e-5)
    assert back.relative_error <= error * (1 + 1e-8)


@pytest.mark.slow
def test_no_shorter_message_has_the_target_error():
    share = 1.4
    best = plan(200, 5000, 3.0).relative_error
    found = plan(200, 5000, 3.0, target_error=share * best)
    assert found.solved_for == "bits"
    assert found.relative_error <= share * best * (1 + 1e-9)
    with pytest.raises(
        ValueError, match=r"target_error must be at least|bits must be at least"
    ):
        plan(200, 5000, 3.0, target_error=share * best, bits=found.bits - 1)


def test_a_capped_plan_may_spend_less_than_is_allowed():
    found = planned("few bits, less epsilon")
    assert found.epsilon < 6.0
    full = FrameUnit(200, 6.0, frames=found.mechanism.frames)
    assert full.typical_error(300).total > found.error**2
    assert f"ε = {found.epsilon:g}" in found.explanation
    assert plan(200, 300, 6.0).epsilon == 6.0


@pytest.mark.slow
def test_rounds_and_totals():
    found = plan(1000, 10_000, 8.0, rounds=100, delta=1e-6)
    assert rounds_allowed(found.epsilon, 8.0, 1e-6) >= 100
    assert 8 - 1e-8 < found.total_epsilon <= 8.0
    assert found.total_bytes == 100 * -(-10_000 * found.bits // 8)
    pure = plan(1000, 10_000, 8.0, rounds=100)
    assert pure.epsilon == pytest.approx(0.08)
    assert pure.total_epsilon <= 8.0
    solved = plan(1000, 10_000, rounds=3, target_error=pure.relative_error)
    assert solved.epsilon == pytest.approx(pure.epsilon, rel=2e-5)
    assert solved.total_epsilon == compose(solved.epsilon, 3)


# --- caps and monotony ---


@pytest.mark.slow
def test_no_message_is_longer_than_allowed():
    for bits in (8, 10, 16):
        found = plan(100, 10**5, 3.0, bits=bits)
        built = found.build()
        assert built.message_bits == found.bits <= bits
        assert built.exact
        assert built.delta == 0
        assert built.privacy_loss() <= 3.0


def best_error(clients, epsilon, bits):
    return best_candidate(100, epsilon, clients, bits).mse


@pytest.mark.slow
def test_more_epsilon_and_more_bits_never_err_more():
    # Where frames are too few for the bits, ε is chosen from a grid, within 0.1 % of the best.
    errors = [best_error(10**5, epsilon, 11) for epsilon in (0.1, 1.0, 3.0, 4.5, 12.0)]
    assert np.all(np.diff(errors) <= 1e-3 * np.array(errors[:-1]))
    errors = [best_error(10**4, 3.0, most) for most in (8, 9, 12, 17, None)]
    assert np.all(np.diff(errors) <= 1e-12)


# --- what a plan gives ---


@pytest.mark.parametrize("case", PLANNED)
def test_the_spec_and_the_line_of_python_are_the_mechanism(case):
    found = planned(case)
    built = found.build()
    assert built.name == CHOSEN.get(case, "frameunit")
    assert sstq.from_json(built.to_json()) == built
    assert eval(found.python(), {"sstq": sstq}) == built  # noqa: S307
    assert (built.dim, built.clip) == (
        PLANNED[case]["dim"],
        PLANNED[case].get("clip", 1.0),
    )
    assert built.epsilon == found.epsilon <= PLANNED[case]["epsilon"]


@pytest.mark.slow
def test_trade_offs_are_told():
    assert (
        "with 16 bits it would be negligible"
        in plan(200, 2000, 3.0, bits=10).explanation
    )
    assert "fresh frame_seed" in plan(2000, 100, 3.0).explanation
    assert "shortest" in plan(200, 2000, 3.0, target_error=1.0).explanation


# --- impossible requests ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 1000}, "two of epsilon=.* must be given"),
        ({"dim": 0, "clients": 10, "epsilon": 1.0}, r"dim must be an integer in \[1, "),
        ({"dim": 1000, "clients": 0, "epsilon": 1.0}, "clients must be"),
        (
            {"dim": 1000, "clients": 10, "epsilon": 21.0},
            r"epsilon must be a number in \[0.01, 20\]",
        ),
        ({"dim": 1000, "clients": 10, "target_error": -1.0}, "target_error must be"),
        (
            {"dim": 1000, "clients": 10, "epsilon": 1.0, "trust": "aggregator"},
            "trust must be 'local'",
        ),
        (
            {"dim": 1000, "clients": 10, "epsilon": 1.0, "bits": 9},
            "bits must be at least 11 for dim = 1000, got 9: the index alone takes 10",
        ),
        (
            {"dim": 1000, "epsilon": 1.0, "target_error": 1e-8},
            r"target_error must be at least 8.1.*, even for 1e\+12 clients",
        ),
        (
            {"dim": 1000, "clients": 10, "target_error": 0.1},
            "target_error must be at least .* at epsilon = 20, got 0.1; [0-9]+ clients would have it",
        ),
        (
            {"dim": 1000, "clients": 10, "rounds": 1000, "epsilon": 1.0},
            "pass rounds=(99|100)$",
        ),
        (
            {"dim": 1000, "clients": 10, "epsilon": 1.0, "mean_norm": 1.5},
            "mean_norm must be a number in .*, 1], got 1.5",
        ),
        (
            {"dim": 9, "clients": 10, "epsilon": 1.0, "trust": "shuffler", "rounds": 2},
            "rounds must be left out with trust='shuffler', got 2",
        ),
    ],
)
def test_impossible_requests_say_what_is_possible(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)


@pytest.mark.slow
def test_the_closest_that_is_named_is_possible():
    with pytest.raises(ValueError, match="target_error must be at least") as refusal:
        plan(1000, 1000, 1.0, target_error=0.9)
    clients = int(str(refusal.value).split("; ")[1].split()[0])
    assert plan(1000, clients, 1.0).relative_error <= 0.9 * (1 + 1e-8)
    assert plan(1000, clients - 1, 1.0).relative_error > 0.9


# --- the command ---


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_the_command_prints_facts_and_writes_a_spec_that_encodes(tmp_path):
    spec = tmp_path / "spec.json"
    result = run(
        "--dim", 300, "--clients", 1000, "--epsilon", 12, "--rounds", 4, "-o", spec
    )
    facts = dict(line.split("\t", 1) for line in result.stdout.splitlines())
    found = plan(300, 1000, 12.0, rounds=4)
    assert facts["mechanism"] == f"{found.label}, {found.bits} bits per message"
    assert facts["total bytes"] == str(found.total_bytes)
    assert facts["total epsilon per person"].startswith("12 (")
    assert facts["error of the mean"].startswith(f"{found.relative_error:.3g} of clip")
    assert facts["why"] == found.explanation
    assert facts["mechanism in python"] == found.python()
    assert sstq.from_json(spec.read_text()) == found.mechanism
    np.save(tmp_path / "vectors.npy", np.ones((3, 300)))
    encoded = [
        "encode",
        tmp_path / "vectors.npy",
        "--mechanism",
        spec,
        "--output",
        tmp_path / "messages.sstq",
    ]
    assert (
        CliRunner().invoke(app, [str(argument) for argument in encoded]).exit_code == 0
    )
