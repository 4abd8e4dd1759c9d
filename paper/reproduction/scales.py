"""The sizes of the experiments: the paper's, or a quick look at everything."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Scale"]

_PAPER_METHODS = (
    "clean",
    "privunit",
    "vqsgd",
    "sqkr",
    "sstq-optimized",
    "sstq-uniform",
    "sstq-metric",
    "sstq-metric-sharp",
)
_OUR_METHODS = ("sstq-certified", "sstq-optimal", "frameunit", "privunitg")
_METHODS = (*_PAPER_METHODS, *_OUR_METHODS)
# A variant of one method that Fashion-MNIST also shows; here every method takes minutes per seed.
_CIFAR_METHODS = tuple(method for method in _METHODS if method != "sstq-metric-sharp")


@dataclass(frozen=True)
class Scale:
    """The sizes of all experiments.

    Attributes:
        quick: whether this is less than the paper ran.
        seeds: the number of seeds.
        methods: keys of `METHODS`.
        mse_dims: dimensions of the error measurement.
        trials: the trials of the error measurement per seed.
        regression_dims: dimensions of the regression.
        bit_widths: the bit widths to compare.
        rounds: the training rounds by data set, including regressions.
        image_methods: keys of `METHODS` by data set, if fewer than all are run.
        timing_dims: dimensions at which a round is timed.
        timed_rounds: the number of timed rounds.
        once_epsilons: the values of total ε per person in the experiment `once`.
        once_small_epsilons: further values, for which only the methods of the comparison of trust are run.
        once_datasets: the data sets of `once`; the first has all ε and methods.
    """

    quick: bool = False
    seeds: int = 5
    methods: tuple[str, ...] = _METHODS
    mse_dims: tuple[int, ...] = (100, 500, 1000, 5000, 10_000)
    trials: int = 200
    regression_dims: tuple[int, ...] = (100, 200, 500)
    bit_widths: tuple[int, ...] = (4, 8)
    rounds: tuple[tuple[str, int], ...] = (("regression", 100), ("fashion-mnist", 100), ("cifar-10", 100))
    image_methods: tuple[tuple[str, tuple[str, ...]], ...] = (("cifar-10", _CIFAR_METHODS),)
    timing_dims: tuple[int, ...] = (25_450, 98_666)
    timed_rounds: int = 3
    once_epsilons: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 6.0)
    once_small_epsilons: tuple[float, ...] = (0.25, 0.5)
    once_datasets: tuple[str, ...] = ("fashion-mnist", "cifar-10")

    def rounds_of(self, kind: str) -> int:
        """Return the number of training rounds."""
        return dict(self.rounds)[kind]

    def methods_of(self, kind: str) -> tuple[str, ...]:
        """Return the methods that are trained on a data set."""
        return dict(self.image_methods).get(kind, self.methods)


FULL = Scale()
QUICK = Scale(
    quick=True,
    seeds=1,
    mse_dims=(100, 1000),
    trials=200,
    regression_dims=(100, 200),
    rounds=(("regression", 100), ("fashion-mnist", 10), ("cifar-10", 3)),
    image_methods=(("cifar-10", ("clean", "sstq-uniform", "frameunit")),),
    timing_dims=(25_450,),
    timed_rounds=1,
    once_epsilons=(3.0,),
    once_small_epsilons=(),
    once_datasets=("fashion-mnist",),
)
"""Two minutes on two cores; where it trains for fewer rounds, its accuracies say nothing about the paper's."""
