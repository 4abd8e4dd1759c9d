import numpy as np

from paper.training.models import HiddenLayer, LeastSquares


def numerical_gradient(loss, parameters, step=1e-6):
    gradient = np.empty(len(parameters))
    for i in range(len(parameters)):
        ahead = parameters.copy()
        behind = parameters.copy()
        ahead[i] += step
        behind[i] -= step
        gradient[i] = (loss(ahead) - loss(behind)) / (2 * step)
    return gradient


def test_gradients_of_the_network_are_those_of_its_loss(seed):
    """In double precision against differences, for three clients at once."""
    rng = np.random.default_rng(seed)
    model = HiddenLayer(inputs=4, hidden=5, classes=3)
    parameters = rng.standard_normal(model.dim)
    x = rng.standard_normal((3, 6, 4))
    y = rng.integers(0, 3, (3, 6))
    # Inputs and weights in sixteenths and biases between multiples of 1/256: no unit is so close to its kink that the
    # differences see both slopes.
    x, parameters[:20] = np.round(16 * x) / 16, np.round(16 * parameters[:20]) / 16
    parameters[20:25] = (np.floor(256 * parameters[20:25]) + 0.5) / 256
    gradients = model.gradients(parameters, x, y)
    assert gradients.shape == (3, model.dim)
    for client in range(3):
        expected = numerical_gradient(
            lambda p, c=client: model.evaluate(p, x[c], y[c]).loss, parameters
        )
        np.testing.assert_allclose(gradients[client], expected, atol=1e-6)


def test_gradients_of_the_regression_are_those_of_its_loss(seed):
    rng = np.random.default_rng(seed)
    model = LeastSquares(rng.standard_normal(4))
    parameters = rng.standard_normal(4)
    x = rng.standard_normal((3, 6, 4))
    y = rng.standard_normal((3, 6))
    for client, gradient in enumerate(model.gradients(parameters, x, y)):
        expected = numerical_gradient(
            lambda p, c=client: float(np.mean((x[c] @ p - y[c]) ** 2) / 2), parameters
        )
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_he_starts_with_the_variance_of_its_inputs_and_no_biases(seed):
    model = HiddenLayer(inputs=800, hidden=50, classes=40, start="he")
    parameters = model.initial(seed)
    weights, bias, second, last = np.split(
        parameters, np.cumsum([800 * 50, 50, 50 * 40])
    )
    assert not bias.any()
    assert not last.any()
    for part, inputs in ((weights, 800), (second, 50)):
        # The variance of n normal numbers has a relative standard error of √(2/n); six of them: one run in 10⁸ fails.
        assert abs(part.var() * inputs / 2 - 1) < 6 * (2 / len(part)) ** 0.5
