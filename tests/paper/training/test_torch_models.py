import subprocess
import sys

import numpy as np
import pytest
import torch
from paper.commands.models import image_problem_with
from torch import nn

import sstq
from paper.datasets import load
from paper.training import HiddenLayer, Problem, Server, TorchModel, iid_partition, image_problem, train

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors are slower on several threads, much slower where others use the processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def in_sixteenths(numbers):
    """Numbers whose sums of products are exact: in whatever order, no rectified unit is on another side of its kink."""
    return np.round(16 * numbers) / 16


def batches(seed, clients=5, batch=6, inputs=4, classes=3):
    rng = np.random.default_rng(seed)
    x = in_sixteenths(rng.standard_normal((clients, batch, inputs))).astype(np.float32)
    return x, rng.integers(0, classes, (clients, batch))


def network(inputs=4, hidden=5, classes=3):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def test_the_papers_network_has_the_same_gradients_as_in_numpy(seed):
    """A torch layer keeps its weights as (outputs, inputs), ours as (inputs, outputs)."""
    ours, theirs = HiddenLayer(4, 5, 3), TorchModel(network)
    x, y = batches(seed)
    parameters = in_sixteenths(ours.initial(seed % 1000))

    def to_torch(vector):
        first, bias, second, last = np.split(vector, np.cumsum([20, 5, 15]))
        return np.concatenate([first.reshape(4, 5).T.ravel(), bias, second.reshape(5, 3).T.ravel(), last])

    expected = np.stack([to_torch(gradient) for gradient in ours.gradients(parameters, x, y)])
    # Sums of a few dozen float32 products of order one.
    np.testing.assert_allclose(theirs.gradients(to_torch(parameters), x, y), expected, atol=2e-6)
    mine, their = (m.evaluate(p, x[0], y[0]) for m, p in ((ours, parameters), (theirs, to_torch(parameters))))
    assert their.loss == pytest.approx(mine.loss, rel=1e-5)
    assert their.accuracy == mine.accuracy


def test_few_clients_at_a_time_have_the_gradients_of_many(seed):
    x, y = batches(seed, clients=7)
    models = [TorchModel(network, at_a_time=count) for count in (1, 3, 100)]
    parameters = in_sixteenths(models[0].initial(1))
    found = [model.gradients(parameters, x, y) for model in models]
    assert found[0].shape == (7, models[0].dim)
    assert found[0].dtype == np.float32
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)
    # Each client's is its own, not that of all.
    alone = models[0].gradients(parameters, x[3:4], y[3:4])
    np.testing.assert_allclose(found[2][3:4], alone, atol=1e-6)
    assert np.abs(found[0][3] - found[0][4]).max() > 1e-3


def test_the_vector_is_in_the_order_of_the_parameters():
    module = network()
    model = TorchModel(module)
    assert model.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy()
    np.testing.assert_array_equal(model.initial(0), expected)


def test_a_built_module_starts_from_the_seed_and_a_given_one_as_it_is():
    built = TorchModel(network)
    np.testing.assert_array_equal(built.initial(3), built.initial(3))
    assert np.any(built.initial(3) != built.initial(4))
    given = TorchModel(network())
    np.testing.assert_array_equal(given.initial(3), given.initial(4))


def test_neither_the_module_nor_the_global_generator_is_touched(seed):
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    state = torch.get_rng_state()
    model = TorchModel(module)
    x, y = batches(seed)
    model.gradients(model.initial(1), x, y)
    TorchModel(network).initial(5)
    model.evaluate(model.initial(1), x[0], y[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_frozen_parameters_are_not_in_the_vector(seed):
    def build():
        module = network()
        module[0].requires_grad_(False)
        return module

    model = TorchModel(build)
    assert model.names == ("2.weight", "2.bias")
    x, y = batches(seed)
    gradients = model.gradients(model.initial(1), x, y)
    assert gradients.shape == (5, 18)
    # The same as the last numbers of the gradients of all, at the same point: frozen parameters are built with seed 0.
    whole = TorchModel(network)
    point = np.concatenate([whole.initial(0)[:25], model.initial(1)])
    np.testing.assert_allclose(gradients, whole.gradients(point, x, y)[:, 25:], atol=1e-6)
    with pytest.raises(ValueError, match="at least one trainable number"):
        TorchModel(nn.Linear(2, 2).requires_grad_(False))


def test_tied_parameters_are_there_once(seed):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    model = TorchModel(Tied)
    assert model.dim == 16
    x, y = batches(seed)
    module = model.trained_module(model.initial(2)).train()
    nn.functional.cross_entropy(module(torch.from_numpy(x[0])), torch.from_numpy(y[0])).backward()
    gradient = model.gradients(model.initial(2), x, y)[0]
    np.testing.assert_allclose(gradient, module.first.weight.grad.numpy().ravel(), atol=1e-6)


def test_dropout_is_a_function_of_seed_parameters_and_targets(seed):
    def build():
        return nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3))

    x, y = batches(seed)
    x[1], y[1] = x[0], y[0]
    model, other = TorchModel(build), TorchModel(build, dropout_seed=1)
    start = model.initial(0)
    gradients = model.gradients(start, x, y)
    np.testing.assert_array_equal(gradients, model.gradients(start, x, y))
    assert np.abs(gradients[0] - gradients[1]).max() > 1e-3, "each client has a mask of its own"
    assert np.abs(gradients - other.gradients(start, x, y)).max() > 1e-3
    moved = start.copy()
    moved[-1] += np.float32(1e-6)
    assert np.abs(gradients - model.gradients(moved, x, y)).max() > 1e-3, "every round has new masks"
    again = model.gradients(start, x[::-1], y[::-1])[::-1]
    assert np.abs(gradients - again).max() > 1e-3, "and every group of clients"
    assert model.evaluate(start, x[0], y[0]) == other.evaluate(start, x[0], y[0])


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.InstanceNorm1d(4, track_running_stats=True)])
def test_running_statistics_are_refused(layer):
    with pytest.raises(ValueError, match=r"layer '0' .* not private .* use GroupNorm"):
        TorchModel(nn.Sequential(layer, nn.Linear(4, 3)))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(4, track_running_stats=False)])
def test_statistics_that_stay_or_are_not_kept_are_allowed(layer, seed):
    model = TorchModel(nn.Sequential(layer, nn.Linear(4, 3)))
    x, y = batches(seed)
    assert np.isfinite(model.gradients(model.initial(0), x, y)).all()


def test_statistics_are_not_woken_by_the_module_that_was_given(seed):
    module = nn.Sequential(nn.BatchNorm1d(4).eval(), nn.Linear(4, 3))
    model = TorchModel(module)
    module.train()
    x, y = batches(seed)
    start = model.initial(0)
    model.gradients(start, x, y)
    assert not model.trained_module(start)[0].running_mean.any()
    assert not module[0].running_mean.any()


def test_statistics_that_are_sent_are_refused_in_any_mode():
    with pytest.raises(ValueError, match=r"layer '0' \(SyncBatchNorm\) sends statistics"):
        TorchModel(nn.Sequential(nn.SyncBatchNorm(4), nn.Linear(4, 3)).eval())


def test_any_other_buffer_that_changes_is_refused_by_torch(seed):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return self.linear(x)

    model = TorchModel(Counting)
    x, y = batches(seed)
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        model.gradients(model.initial(0), x, y)


def test_regression_and_losses_of_ones_own(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((3, 6, 4)).astype(np.float32), rng.standard_normal((3, 6)).astype(np.float32)
    model = TorchModel(lambda: nn.Linear(4, 1, bias=False), loss="squared-error")
    parameters = model.initial(0)
    residuals = x @ parameters - y
    expected = 2 * np.einsum("cb,cbi->ci", residuals, x) / 6
    np.testing.assert_allclose(model.gradients(parameters, x, y), expected, atol=1e-5)
    evaluation = model.evaluate(parameters, x[0], y[0])
    assert evaluation.loss == pytest.approx(float(np.mean(residuals[0] ** 2)), rel=1e-5)
    assert evaluation.accuracy is None
    whole = np.rint(y).astype(np.int64)
    np.testing.assert_array_equal(
        model.gradients(parameters, x, whole), model.gradients(parameters, x, whole.astype(np.float32))
    )
    halved = TorchModel(lambda: nn.Linear(4, 1, bias=False), loss=lambda a, b: ((a[:, 0] - b) ** 2).mean() / 2)
    np.testing.assert_allclose(halved.gradients(parameters, x, y), expected / 2, atol=1e-5)


def test_modules_of_other_precision_compute_in_single(seed):
    x, y = batches(seed)
    for dtype in (torch.float64, torch.bfloat16):
        module = network().to(dtype)
        model = TorchModel(module)
        assert model.gradients(model.initial(0), x, y).dtype == np.float32
        assert next(module.parameters()).dtype == dtype


def test_evaluation_of_many_examples_is_that_of_each(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((1300, 4)).astype(np.float32), rng.integers(0, 3, 1300)
    x.setflags(write=False)
    model = TorchModel(network)
    parameters = model.initial(0)
    with torch.no_grad():
        outputs = model.trained_module(parameters)(torch.tensor(x))
    whole = model.evaluate(parameters, x, y)
    assert whole.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, torch.tensor(y))), rel=1e-5)
    assert whole.accuracy == float((outputs.argmax(1).numpy() == y).mean())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "hinge"}, "loss must be 'cross-entropy' or 'squared-error', got 'hinge'"),
        ({"at_a_time": 0}, "at_a_time must be an integer in"),
        ({"dropout_seed": -1}, "dropout_seed must be an integer in"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        TorchModel(network, **arguments)


def test_what_builds_no_module_is_refused():
    with pytest.raises(ValueError, match=r"must be or build a torch.nn.Module, got dict"):
        TorchModel(dict)
    with pytest.raises(ValueError, match=r"dtype torch\.complex64"):
        TorchModel(nn.ParameterList([nn.Parameter(torch.zeros(2, dtype=torch.complex64))]))


def test_a_convolutional_network_learns_the_digits_privately():
    """With fixed seeds: 15 rounds of FrameUnit at ε = 8 bring the accuracy from a tenth to about 0.45."""
    digits = load("digits")
    problem = image_problem_with("paper.training.torch_networks:convolutional", digits, 100, 0)
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=8.0, clip=1.0)
    rounds = list(train(problem, mechanism, Server(rate=0.3), 15, batch=14, private_seed=1))
    assert rounds[0].accuracy < 0.2
    assert rounds[-1].accuracy > 0.3, rounds[-1].accuracy
    assert rounds[-1].bits == 15 * mechanism.message_bits


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    def build():
        return nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 3))

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 2)).astype(np.float32), rng.integers(0, 3, 200)
    problem = Problem("points", TorchModel(build), x, y, iid_partition(200, 10, 0), x, y)
    mechanism = sstq.mechanism("frameunit", dim=problem.model.dim, epsilon=4.0)
    options = {"batch": 4, "private_seed": 1}
    whole = list(train(problem, mechanism, Server(), 4, **options))
    list(train(problem, mechanism, Server(), 2, **options, checkpoint=tmp_path / "state.npz"))
    rest = list(train(problem, mechanism, Server(), 4, **options, checkpoint=tmp_path / "state.npz"))
    np.testing.assert_array_equal(rest[-1].parameters, whole[-1].parameters)


def squared(outputs, targets):
    return (outputs[:, 0] - targets).square().mean()


def test_models_are_the_same_when_their_descriptions_are():
    def linear(bias=0.5, activation=nn.Tanh, **options):
        module = nn.Sequential(nn.Linear(2, 3), activation(), nn.Dropout(0.5))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(bias)
        return TorchModel(module, **options)

    def with_buffer(value):
        module = nn.Sequential(nn.Linear(2, 3))
        module.register_buffer("scale", torch.tensor(value), persistent=False)
        return TorchModel(module)

    assert linear().description == linear().description
    frozen, evaluated = nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    frozen.bias.requires_grad_(False)
    models = [
        linear(),
        linear(bias=0.25),
        linear(activation=nn.ReLU),
        linear(loss="squared-error"),
        linear(loss=squared),
        linear(input_shape=(2,)),
        linear(at_a_time=8),
        linear(dropout_seed=1),
        with_buffer(1.0),
        with_buffer(2.0),
        TorchModel(frozen),
        TorchModel(evaluated),
        TorchModel(evaluated.eval()),
    ]
    assert len({model.description for model in models}) == len(models)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 2)).astype(np.float32), rng.integers(0, 3, 50)

    def go_on(activation, rounds):
        model = TorchModel(lambda: nn.Sequential(nn.Linear(2, 3), activation()))
        problem = Problem("points", model, x, y, iid_partition(50, 5, 0), x, y)
        mechanism = sstq.mechanism("clean", dim=model.dim)
        return list(train(problem, mechanism, Server(), rounds, batch=4, checkpoint=tmp_path / "state.npz"))

    go_on(nn.Tanh, 1)
    with pytest.raises(ValueError, match=r"differs in model$"):
        go_on(nn.Identity, 2)
    assert [report.number for report in go_on(nn.Tanh, 2)] == [1, 2]


def test_a_model_of_the_users_own_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "own_networks.py").write_text(
        "from torch import nn\n"
        "def linear(shape, classes):\n"
        "    assert shape == (1, 8, 8)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    digits = load("digits")
    problem = image_problem_with("own_networks:linear", digits, 50, 0)
    assert (problem.clients, problem.model.dim, problem.name) == (50, 650, "digits with own_networks:linear")
    assert sys.path == path
    for text in ("own_networks:missing", "own_networks:number"):
        with pytest.raises(ValueError, match="own_networks has no function"):
            image_problem_with(text, digits, 50, 0)
    for text in ("mlp", ":linear", "own_networks:"):
        with pytest.raises(ValueError, match="--model must be hidden-layer, logistic or MODULE:FUNCTION"):
            image_problem_with(text, digits, 50, 0)
    with pytest.raises(ImportError, match="no_such_networks"):
        image_problem_with("no_such_networks:linear", digits, 50, 0)


def test_the_papers_network_needs_no_torch_model():
    digits = load("digits")
    problem = image_problem_with("hidden-layer", digits, 50, 0)
    assert (problem.name, problem.model) == ("digits", image_problem(digits, 50, 0).model)


def test_torch_is_imported_only_when_it_is_asked_for():
    program = """
import sys, sstq, paper.training, sstq.cli, paper.commands.models, sstq.integrations
from paper.training import *
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    paper.training.TorchModel
except ImportError as error:
    assert "sstq[torch]" in str(error), error
else:
    raise SystemExit("no error")
try:
    import sstq.integrations.torch
except ImportError as error:
    assert "sstq[torch]" in str(error), error
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
