"""How tight the theorems are: each bound against what the mechanisms do.

python -m benchmarks theory                                         # the numbers
python -m benchmarks.theory --output docs/figures/tightness.png      # and the picture
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import sstq
from benchmarks.harness import Result, benchmark
from paper import theory as proven
from sstq.files.atomic import atomic_file
from sstq.frames.kashin import default_level
from sstq.frames.tight import HadamardFrame
from sstq.scalar.codebooks import panter_dite_codebook, uniform_codebook


@dataclass(frozen=True)
class Regression:
    """Robust linear regression, f_i(w) = log(1 + (⟨a_i, w⟩ − t_i)²/2) with ‖a_i‖ = 1: not convex, inf F = 0.

    |f'| ≤ 1/√2, so every gradient has norm at most G = 1/√2, and |f''| ≤ 1, so L is at most that of the least squares.
    """

    rows: NDArray[np.float64]
    targets: NDArray[np.float64]

    gradient_bound = 2**-0.5

    @classmethod
    def draw(cls, dim: int, clients: int, rng: np.random.Generator) -> "Regression":
        """Like-minded clients, and a start w = 0 at which all of them pull hard the same way."""
        direction = np.full(dim, dim**-0.5)
        rows = direction + 0.3 * rng.standard_normal((clients, dim)) / dim**0.5
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return cls(rows, rows @ (2**0.5 * direction))

    def gradients(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """One row per client."""
        residuals = self.rows @ w - self.targets
        return self.rows * (residuals / (1 + residuals**2 / 2))[:, None]

    @property
    def constants(self) -> dict[str, Any]:
        """What Assumption 6.1 asks for, exactly."""
        return {
            "smoothness": float(np.linalg.eigvalsh(self.rows.T @ self.rows / len(self.rows))[-1]),
            "initial_gap": float(np.mean(np.log1p(self.targets**2 / 2))),
            "clients": len(self.rows),
            "gradient_bound": self.gradient_bound,
        }

    def descend(
        self, mechanism: sstq.Mechanism, step_size: float, rounds: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """‖∇F(w_t)‖² for t = 0, …, rounds − 1, each gradient sent through the mechanism."""
        w = np.zeros(self.rows.shape[1])
        squares = np.empty(rounds)
        for t in range(rounds):
            gradients = self.gradients(w)
            squares[t] = np.sum(gradients.mean(axis=0) ** 2)
            aggregator = mechanism.aggregator()
            aggregator.update(mechanism.encode(gradients, rng=rng))
            w -= step_size * aggregator.mean().value
        return squares


DIM = 600
BUDGETS = (1.0, 3.0, 6.0)
COLOURS = ("#b3400f", "#1f5fa8", "#3c7d3c", "#777777")


def typical(dim: int) -> NDArray[np.float64]:
    """A random unit vector, always the same."""
    x = np.random.default_rng(dim).standard_normal(dim)
    return np.asarray(x / np.linalg.norm(x))


def least_level_by_linear_program(frame: HadamardFrame, x: NDArray[np.float64]) -> float:
    """The least Kashin level of a unit vector: minimise max|y_j| over all representations y."""
    from scipy.optimize import linprog

    rows, count = frame.rows(np.arange(frame.size)), frame.size
    box = np.concatenate([np.eye(count), -np.eye(count)])
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=np.column_stack([box, -np.ones(2 * count)]),
        b_ub=np.zeros(2 * count),
        A_eq=np.column_stack([frame.dim / count * rows.T, np.zeros(frame.dim)]),
        b_eq=x,
        bounds=[(None, None)] * count + [(0, None)],
    )
    return float(found.fun) * math.sqrt(count)


def ratios(what: str, bounds: Any, actual: Any, note: str = "") -> Result:
    """One line of the table: how many times the bound is what happens, from the best to the worst case."""
    ratio = np.asarray(bounds, dtype=np.float64) / np.asarray(actual, dtype=np.float64)
    return Result(what, float(ratio.min()), "×", f"up to {ratio.max():.3g}× {note}".strip())


def draw_levels(axes: Any) -> Result:
    """Theorem 2.4: Kashin levels."""
    size = 256
    dims = (32, 48, 64, 80, 100, 128, 160, 200)
    redundancy = np.array([size / dim for dim in dims])
    floors = np.array([proven.least_level(dim, size) for dim in dims])
    least = np.array([least_level_by_linear_program(HadamardFrame(dim, size), typical(dim)) for dim in dims])
    grid = np.linspace(1, 8, 200)
    axes.plot(grid, np.sqrt(grid), color=COLOURS[1], label="√ρ: no vector below")
    axes.plot(grid, np.sqrt(math.pi / 2 * grid), "--", color=COLOURS[1], label="√(πρ/2): no typical vector below")
    axes.plot(redundancy, least, "o", color=COLOURS[0], markersize=4, label="least level (linear program)")
    axes.plot(grid, [default_level(10**6, round(r * 10**6)) for r in grid], color=COLOURS[3], label="our default")
    axes.axhline(2, color=COLOURS[2], label="paper: K = 2")
    axes.axvspan(2.5, 5, color=COLOURS[2], alpha=0.12, linewidth=0)
    axes.set(xlabel="redundancy ρ = N/d (green: the paper's)", ylabel="Kashin level K", ylim=(0, 7))
    return ratios("Theorem 2.4, least level", least, floors, "(least level over its bound √ρ)")


def draw_flat(axes: Any, codebook: str) -> Result:
    """Error of the flat channel against its bound, by bits."""
    bound_of = proven.flat_mse_bound if codebook == "uniform" else proven.optimized_mse_bound
    bits = np.arange(1 if codebook == "uniform" else 2, 9)
    bounds, exact = [], []
    for epsilon, colour in zip(BUDGETS, COLOURS, strict=False):
        bounds.append([bound_of(DIM, epsilon, int(b)) for b in bits])
        mechanisms = [sstq.SSTQ(DIM, epsilon, bits=int(b), codebook=codebook) for b in bits]
        exact.append([mechanism.expected_mse(typical(DIM)).total for mechanism in mechanisms])
        axes.plot(bits, np.divide(bounds[-1], DIM), color=colour)
        axes.plot(bits, np.divide(exact[-1], DIM), "o", color=colour, markersize=4, label=f"ε = {epsilon:g}")
    axes.set(xlabel="bits b", ylabel="E‖x̂ − x‖²/d", yscale="log")
    number = "3.2" if codebook == "uniform" else "4.3"
    return ratios(f"Theorem {number}, flat {codebook}", bounds, exact)


def draw_uniform(axes: Any) -> Result:
    """Theorem 3.2: flat, uniform codebook."""
    return draw_flat(axes, "uniform")


def draw_optimized(axes: Any) -> Result:
    """Theorem 4.3: flat, optimized codebook."""
    return draw_flat(axes, "optimized")


def draw_privacy(axes: Any) -> Result:
    """Theorem 5.1: what the metric-aware channel spends."""
    nominal = np.linspace(0.5, 10, 20)
    spent = []
    for bits, colour in zip((1, 2, 8), COLOURS, strict=False):
        mechanisms = [sstq.SSTQ(8, float(e), bits=bits, channel="metric-aware", rate="paper") for e in nominal]
        spent.append([mechanism.privacy_loss() for mechanism in mechanisms])
        exact = [proven.metric_aware_privacy_loss(uniform_codebook(bits), float(e)) for e in nominal]
        axes.plot(nominal, exact, color=colour, linewidth=0.8)
        axes.plot(nominal, spent[-1], "o", color=colour, markersize=3, label=f"spent, b = {bits}")
    axes.plot(nominal, nominal, color="black", label="bound: ε")
    axes.set(xlabel="nominal ε", ylabel="exact privacy loss")
    return ratios("Theorem 5.1, privacy", np.broadcast_to(nominal, np.shape(spent)), spent)


def metric_aware_errors(budgets: NDArray[np.float64]) -> list[sstq.ExpectedError]:
    """Exact errors of the paper's metric-aware mechanism with 4 bits."""
    mechanisms = [sstq.SSTQ(DIM, float(e), bits=4, channel="metric-aware", rate="paper") for e in budgets]
    return [mechanism.expected_mse(typical(DIM)) for mechanism in mechanisms]


def draw_metric_aware_error(axes: Any) -> Result:
    """Theorem 5.2: metric-aware error."""
    budgets = np.geomspace(0.5, 20, 12)
    exact = [error.total for error in metric_aware_errors(budgets)]
    bounds = [proven.metric_aware_mse_bound(DIM, float(e), 4) for e in budgets]
    axes.plot(budgets, np.divide(bounds, DIM), color=COLOURS[0], label="bound")
    axes.plot(budgets, np.divide(exact, DIM), "o", color=COLOURS[0], markersize=4, label="exact, b = 4")
    axes.axhline(1 / DIM, color=COLOURS[3], linestyle="--", label="always answering 0")
    axes.set(xlabel="ε", ylabel="E‖x̂ − x‖²/d", xscale="log", yscale="log")
    return ratios("Theorem 5.2, error", bounds, exact)


def draw_bias(axes: Any) -> Result:
    """Theorem 5.2: metric-aware squared bias."""
    budgets = np.geomspace(0.5, 20, 12)
    exact = [error.bias2 for error in metric_aware_errors(budgets)]
    bounds = [proven.metric_aware_bias_bound(DIM, float(e)) for e in budgets]
    drifts = [1.8**2 * proven.metric_aware_drift(uniform_codebook(4), float(e)) ** 2 for e in budgets]
    axes.plot(budgets, bounds, color=COLOURS[0], label="bound 64K²/(ρε²)")
    axes.plot(budgets, drifts, color=COLOURS[1], label="with the exact drift")
    axes.plot(budgets, exact, "o", color=COLOURS[0], markersize=4, label="exact, b = 4")
    axes.axhline(1, color=COLOURS[3], linestyle="--", label="always answering 0")
    axes.set(xlabel="ε", ylabel="‖E[x̂] − x‖²", xscale="log", yscale="log")
    return ratios("Theorem 5.2, bias", bounds, exact)


def draw_rounding(axes: Any) -> Result:
    """Theorem 5.3: rounding term, known density."""
    density = sstq.Density.censored_gaussian(1.8)
    bits = np.arange(1, 9)
    exact = [proven.rounding_variance(panter_dite_codebook(int(b), density), density) for b in bits]
    bounds = [proven.spatial_constant(density, int(b)) / (2**b - 1) ** 2 for b in bits]
    axes.plot(bits, 1 / (2.0**bits - 1) ** 2, color=COLOURS[3], label="bound with C = 1")
    axes.plot(bits, bounds, color=COLOURS[0], label="bound with C₀² = min(1, ⅔·C_f·R_M)")
    axes.plot(bits, exact, "o", color=COLOURS[0], markersize=4, label="exact, Panter–Dite")
    axes.set(xlabel="bits b", ylabel="E[Var(v | y)]/B²", yscale="log")
    return ratios("Theorem 5.3, rounding", bounds, exact)


def draw_bits(axes: Any) -> Result:
    """Bit-width: stated, and of least error."""
    budgets = np.arange(0.25, 10.01, 0.25)
    best = [proven.best_flat_bits(float(e)) for e in budgets]
    uniform = [proven.best_flat_bits(float(e), "uniform") for e in budgets]
    axes.step(budgets, [proven.stated_bits(float(e)) for e in budgets], color=COLOURS[2], label="stated: ⌈log₂ ε⌉")
    axes.step(
        budgets, [proven.balanced_bits(float(e)) for e in budgets], color=COLOURS[1], label="its equation, solved"
    )
    axes.plot(budgets, best, "o", color=COLOURS[0], markersize=4, label="least error, flat optimized")
    axes.plot(budgets, uniform, "x", color="black", markersize=4, label="least error, flat uniform")
    axes.plot(budgets, budgets / (3 * math.log(2)), ":", color=COLOURS[3], label="ε/(3 log 2)")
    axes.set(xlabel="ε", ylabel="bits b", ylim=(-2.5, 7.5))
    return Result("best bits at ε = 10, flat optimized", best[-1], "bits", f"stated {proven.stated_bits(10.0)}")


def draw_descent(axes: Any) -> Result:
    """Theorem 6.2, Corollary 6.3: private SGD."""
    problem = Regression.draw(4, 500, np.random.default_rng(1))
    mechanism = sstq.SSTQ(4, 3.0, bits=2, clip=problem.gradient_bound)
    descent = proven.flat_descent(4, 3.0, 2, **problem.constants)
    horizons = (25, 50, 100, 200, 400)
    bounds = [proven.dsgd_bound(descent, rounds) for rounds in horizons]
    measured = []
    for rounds in horizons:
        step_size = proven.dsgd_step_size(descent, rounds)
        runs = [problem.descend(mechanism, step_size, rounds, np.random.default_rng(seed)) for seed in range(3)]
        measured.append(np.mean(runs))
    axes.plot(horizons, bounds, color=COLOURS[0], label="bound")
    axes.plot(horizons, measured, "o", color=COLOURS[0], markersize=4, label="measured: d = 4, ε = 3, b = 2, n = 500")
    axes.axhline(problem.gradient_bound**2, color=COLOURS[3], linestyle="--", label="G²")
    axes.set(xlabel="rounds T", ylabel="mean of ‖∇F(w_t)‖²", xscale="log", yscale="log", ylim=(3e-3, 1.2))
    axes.minorticks_off()
    axes.set_xticks(horizons, [str(rounds) for rounds in horizons])
    return ratios("Theorem 6.2 with Corollary 6.3", bounds, measured)


def draw_neighbourhood(axes: Any) -> Result:
    """Corollary 6.4: what is left for T, n → ∞."""
    budgets = np.geomspace(1, 32, 30)
    floors = [2 * proven.metric_aware_bias_bound(DIM, float(e)) for e in budgets]
    axes.plot(budgets, floors, color=COLOURS[0], label="2ζ²/G², what the bound ends in")
    axes.axhline(1, color=COLOURS[3], linestyle="--", label="G², which holds anyway")
    axes.set(xlabel="ε", ylabel="bound on ‖∇F‖²/G²", xscale="log", yscale="log")
    useful = 8 * math.sqrt(2) * 1.8
    axes.axvspan(1, useful, color=COLOURS[3], alpha=0.12, linewidth=0)
    return Result("Corollary 6.4, says something from ε =", useful, "", "at β = 1.8; 11.3·β in general")


def draw_vqsgd(axes: Any) -> Result:
    """Theorem A.1: vqSGD."""
    dims = np.array([4, 16, 64, 256, 1024, 4096])
    bounds, exact = [], []
    for epsilon, colour in zip((1.0, 3.0, 6.0), COLOURS, strict=False):
        bounds.append([proven.vqsgd_mse_bound(int(d), epsilon) for d in dims])
        mechanisms = [sstq.mechanism("vqsgd", dim=int(d), epsilon=epsilon) for d in dims]
        exact.append([mechanism.expected_mse(typical(mechanism.dim)).total for mechanism in mechanisms])
        axes.plot(dims, bounds[-1], color=colour)
        axes.plot(dims, exact[-1], "o", color=colour, markersize=4, label=f"exact, ε = {epsilon:g}")
    axes.plot(dims, dims**3.0 / 36, ":", color=COLOURS[2], label="d³/ε², ε = 6")
    axes.set(xlabel="dimension d", ylabel="E‖x̂ − x‖²", xscale="log", yscale="log")
    return ratios("Theorem A.1, lower bound", exact, bounds, "(exact error over its lower bound)")


def draw_orders(axes: Any) -> Result:
    """Table 1: exact errors over the stated orders."""
    dim, bits = 256, 2
    budgets = np.geomspace(0.1, 20, 14)
    arguments: dict[str, dict[str, Any]] = {
        "vqsgd": {"name": "vqsgd"},
        "sqkr dense": {"name": "sqkr", "variant": "dense"},
        "privunit": {"name": "privunit"},
        "sstq flat": {"name": "sstq", "bits": bits, "codebook": "uniform"},
        "sstq flat optimized": {"name": "sstq", "bits": bits},
    }
    spread = {}
    for (row, rest), colour in zip(arguments.items(), (*COLOURS, "black"), strict=True):
        constants = []
        for epsilon in budgets:
            mechanism = sstq.mechanism(**rest, dim=dim, epsilon=float(epsilon))
            order = proven.error_orders(dim, float(epsilon), bits)[row]
            constants.append(mechanism.expected_mse(typical(dim)).total / order)
        axes.plot(budgets, constants, "o-", color=colour, markersize=3, linewidth=0.8, label=row)
        spread[row] = max(constants) / min(constants)
    axes.set(xlabel="ε", ylabel="exact error/stated order", xscale="log", yscale="log")
    worst = max(spread, key=lambda row: spread[row])
    return Result("Table 1, spread of the constant over ε", spread[worst], "×", f"the worst: {worst}")


PANELS: tuple[Callable[[Any], Result], ...] = (
    draw_levels,
    draw_uniform,
    draw_optimized,
    draw_privacy,
    draw_metric_aware_error,
    draw_bias,
    draw_rounding,
    draw_bits,
    draw_descent,
    draw_neighbourhood,
    draw_vqsgd,
    draw_orders,
)


def new_figure() -> Any:
    """The empty picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 15), dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("Lines are bounds, dots are exact or measured values of the implemented mechanisms", fontsize=13)
    return figure


def draw_panels(figure: Any) -> Iterator[Result]:
    """How many times the bound of a theorem is what happens."""
    for axes, panel in zip(figure.subplots(4, 3).flat, PANELS, strict=True):
        result = panel(axes)
        axes.set_title((panel.__doc__ or "").rstrip("."), fontsize=11)
        axes.legend(frameon=False, fontsize=8, loc="lower left" if panel is draw_descent else "best")
        axes.grid(alpha=0.25)
        yield result


@benchmark
def theory() -> Iterator[Result]:
    """How many times the bound of a theorem is what happens."""
    yield from draw_panels(new_figure())


def main(output: Annotated[Path, typer.Option(help="The picture.")]) -> None:
    """Draw the bounds of the theorems and what happens, and print how tight they are."""
    if not output.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    figure = new_figure()
    for line in draw_panels(figure):
        print(f"{line.what}: {line.figure:.3g} {line.unit} {line.note}")
    with atomic_file(output) as file:
        figure.savefig(file, format="png")


if __name__ == "__main__":
    typer.run(main)
