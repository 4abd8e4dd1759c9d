import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from typer.testing import CliRunner

import sstq
from sstq.cli import app
from sstq.planning import plan

FASHION = {"classes": 10, "dim": 441, "clients": 59_000, "epsilon": 3.0}


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result


def facts(result):
    return dict(line.split("\t", 1) for line in result.stdout.splitlines())


def second_moment(epsilon, blocks):
    """Of one message over the dimension of a block, for the best share f of rows inside: 1/m²."""

    def loss(share):
        kappa = share / blocks
        mass = math.expm1(epsilon) * kappa / (kappa * math.exp(epsilon) + 1 - kappa)
        return (mass * stats.norm.pdf(stats.norm.isf(share)) / share) ** -2

    return minimize_scalar(
        loss, bounds=(1e-6, 0.5), method="bounded", options={"xatol": 1e-9}
    ).fun


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("classes", [10, 100])
def test_the_noise_is_that_of_the_closed_form(classes, epsilon):
    found = plan(64, 59_000, epsilon, classes=classes)
    blocks = found.mechanism.blocks
    # A tenth of the people send their class only, where a block has several.
    people = 59_000 * (1.0 if blocks == classes else 0.9)
    moment = (-(-classes // blocks)) * second_moment(epsilon, blocks) / people
    # Frames leave up to a fifth of the error as bias, which is 4 % of its square.
    assert found.noise**2 / classes == pytest.approx(moment, rel=0.08)


@pytest.mark.slow
def test_class_means_have_the_predicted_noise(seed):
    # A squared error is a sum of classes·directions ≥ 35 squares; the mean of 30 is as good as a χ² of half as many
    # degrees of freedom, as frames and shares tie them together. False-failure rate below 1e-6.
    classes = 4
    found = plan(16, 4000, 4.0, classes=classes)
    size = found.mechanism.dim
    rng = np.random.default_rng(seed)
    repeats = 30
    ratios = np.empty(repeats)
    labels = np.arange(4000) % classes
    for number in range(repeats):
        ours = found.mechanism.with_seed(int(rng.integers(2**63)))
        centers = rng.standard_normal((classes, size))
        centers /= np.linalg.norm(centers, axis=1, keepdims=True)
        aggregator = ours.aggregator()
        aggregator.update(ours.encode(centers[labels], rng=rng, groups=labels))
        means = aggregator.mean().sums * (classes / 4000)  # the shares are known here
        ratios[number] = np.mean((means - centers) ** 2) / found.noise**2
    freedom = repeats * classes * size / 2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], freedom) / freedom
    # the prediction itself is good to 5 % in so few dimensions
    assert 0.95 * low < ratios.mean() < 1.05 * high


@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_directions_are_those_of_water_filling(epsilon):
    found = plan(**{**FASHION, "epsilon": epsilon})
    needs = found.noise**2 * np.arange(1, 442)
    # The water level at which the shares of the first p directions sum to 1; noise hardly depends on their number.
    levels = (1 + np.cumsum(needs)) / np.arange(1, 442)
    assert found.mechanism.dim == pytest.approx(
        np.flatnonzero(needs < levels)[-1] + 1, rel=0.1, abs=1
    )
    assert plan(**{**FASHION, "epsilon": epsilon, "dim": 2}).mechanism.dim == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 1}, "classes must be"),
        ({"dim": 0}, "dim must be"),
        ({"clients": 0}, "clients must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1e-6}, "delta must be left out"),
        ({"rounds": 2}, "rounds must be left out with classes, got 2"),
        ({"epsilon": None}, "epsilon must be given"),
    ],
)
def test_impossible_classifiers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        plan(**{**FASHION, **changes})


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"clients": 100}, {"classes": 1000, "epsilon": 1.0}]
)
def test_every_remedy_is_feasible(changes):
    verdict = plan(**{**FASHION, **changes}).verdict()
    assert not verdict.feasible
    assert [remedy.argument for remedy in verdict.remedies] == ["clients", "epsilon"]
    for remedy in verdict.remedies:
        assert plan(**FASHION | changes | {remedy.argument: remedy.value}).feasible


def test_the_line_of_python_learns():
    pytest.importorskip("sstq.learning")
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=5000)
    X = rng.standard_normal((5000, 8)) + 3 * np.eye(8)[y]
    line = plan(8, 5000, 4.0, classes=3).python()
    model = eval(line, {"sstq": sstq, "X": X, "y": y, "public": X[:200]})  # noqa: S307
    assert len(model.predict(X[:5])) == 5


def test_the_chance_of_a_classifier_grows_with_people_and_epsilon():
    """As fitted: two equally frequent classes need a noise below 0.190 for a chance of 1/2, many hardly any."""
    task = {"classes": 2, "dim": 60, "epsilon": 1.0}
    plans = [plan(clients=clients, **task) for clients in (100, 1000, 10_000, 100_000)]
    chances = [found.chance for found in plans]
    assert chances == sorted(chances)
    assert chances[0] < 0.5 < chances[1]
    assert plan(clients=1000, **task | {"epsilon": 3.0}).chance > chances[1]
    assert plan(clients=1000, **task | {"classes": 10}).chance > 0.75
    for found in plans:
        assert (found.chance > 0.5) == (found.noise < 0.190)
        # Two classes are equally frequent if the most frequent one has half of the people.
        assert (found.chance > 0.9) == (found.useful_below > 0.5)
        assert (found.chance < 0.1) == (found.useless_above < 0.5)
    mean = plan(dim=60, clients=1000, epsilon=1.0)
    assert math.isnan(mean.chance)
    assert math.isnan(mean.useful_below)
    assert math.isnan(mean.useless_above)


# --- the command ---


@pytest.mark.slow
def test_the_command_plans_a_classifier(tmp_path):
    options = ("--classes", 10, "--dim", 441, "--clients", 59_000, "--epsilon", 3)
    result = run(*options, "-o", tmp_path / "m.json")
    found = plan(**FASHION)
    told = facts(result)
    assert told["chance if classes are equally frequent"] == f"{found.chance:.2f}"
    assert (
        told["likely to beat the most frequent class"]
        == f"while it has less than {found.useful_below:.0%} of the people"
    )
    assert (
        told["unlikely to beat it"]
        == f"where it has more than {found.useless_above:.0%} of the people"
    )
    assert facts(result)["noise per coordinate of a class mean"].startswith(
        f"{found.noise:.3g} "
    )
    assert sstq.from_json((tmp_path / "m.json").read_text()) == found.mechanism
    refused = run(
        "--classes",
        10,
        "--dim",
        441,
        "--clients",
        90,
        "--epsilon",
        3,
        "-o",
        tmp_path / "no.json",
        code=1,
    )
    assert "--clients " in refused.stdout
    assert not (tmp_path / "no.json").exists()
    assert (
        "need --clients and --epsilon"
        in run("--classes", 10, "--dim", 441, code=2).stderr
    )
    assert (
        "error: --classes must be" in run("--classes", 1, *options[2:], code=2).stderr
    )
