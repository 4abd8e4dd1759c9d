"""What runs at the server: it starts the rounds, adds up private messages and measures the model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Result
from threadpoolctl import threadpool_limits

from flower_fashion import task
from flower_fashion.watching import WatchedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the rounds of the run's configuration."""
    # Flower's simulation runs this in a thread while it starts Ray, which forks. If OpenBLAS (in NumPy) multiplies with
    # several threads at that moment, it waits for ever.
    with threadpool_limits(1, user_api="blas"):
        _train(grid, context.run_config)


def _train(grid: Grid, config: Mapping[str, Any]) -> None:
    network = task.network(config)
    test = task.test_examples(config)

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        found = network.evaluate(arrays, test)
        spent = strategy.privacy_spent()
        # What it cost the node that answered most stands beside every accuracy.
        cost = {"total-epsilon": spent.epsilon, "total-delta": spent.delta}
        return MetricRecord(
            {"loss": found.loss, "accuracy": found.accuracy or 0.0, **cost}
        )

    # All nodes take part in every round, or cohorts take turns; none is asked for an evaluation of its own.
    cohort = int(config["cohort"]) or None
    nodes = int(config["min-nodes"]) if cohort is None else cohort
    inner = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=min(nodes, 2), min_available_nodes=nodes
    )
    strategy = WatchedStrategy(
        inner,
        str(config["mechanism"]),
        epsilon=float(config["epsilon"]),
        clip=float(config["clip"]),
        participation=None if cohort is None else "once",
        cohort=cohort,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=_start(network, config),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
    if config["output"]:
        _save(Path(str(config["output"])).expanduser(), result, strategy)


def _start(network: task.Network, config: Mapping[str, Any]) -> ArrayRecord:
    """The first model: random, or trained on the server's public examples if it has some."""
    arrays = network.initial(int(config["seed"]))
    if not config["public-examples"]:
        return arrays
    training = {
        **config,
        "local-steps": config["public-steps"],
        "local-rate": config["public-rate"],
    }
    return network.fit(
        arrays, task.public_examples(config), training, [int(config["seed"])]
    )


def _save(folder: Path, result: Result, strategy: WatchedStrategy) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    history = {
        "model": {
            str(number): _numbers(found)
            for number, found in result.evaluate_metrics_serverapp.items()
        },
        "rounds": {
            str(number): _numbers(found)
            for number, found in result.train_metrics_clientapp.items()
        },
        "received": strategy.received,
    }
    (folder / "history.json").write_text(
        json.dumps(history, indent=2, allow_nan=False) + "\n"
    )
    np.savez(
        folder / "model.npz",
        **{name: array.numpy() for name, array in result.arrays.items()},
    )


def _numbers(metrics: MetricRecord) -> dict[str, Any]:
    """Metrics as JSON has them: an error that is not known, from one reply or none, is null."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in metrics.items()
    }
