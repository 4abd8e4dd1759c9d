"""A simulation with a SuperLink of its own, which is stopped at the end.

    python simulation.py --dataset digits --nodes 10 --rounds 2

does what `flwr run` does, but leaves no SuperLink behind, and checks what came of it.
"""

from __future__ import annotations

from checks import check, check_history
from command import folder_for, parser_of, stopping
from superlink import SuperLink


def main() -> None:
    """Simulate, check and stop."""
    parser = parser_of(__doc__, rounds=20)
    parser.add_argument(
        "--nodes", type=int, default=100, help="how many are simulated (default: 100)"
    )
    parser.add_argument(
        "--accuracy",
        type=float,
        default=0.0,
        help="that the last model must exceed, from 0 to 1",
    )
    parser.add_argument(
        "--cohort",
        type=int,
        default=0,
        help="nodes per round, each node once (default: all, always)",
    )
    arguments = parser.parse_args()
    config = {
        "dataset": arguments.dataset,
        "framework": arguments.framework,
        "num-server-rounds": arguments.rounds,
        "min-nodes": arguments.nodes,
        "epsilon": arguments.epsilon,
        "cohort": arguments.cohort,
        "clip": {"fashion-mnist": 0.08, "digits": 0.4}[arguments.dataset],
    }
    with folder_for(arguments.folder) as folder:
        superlink = SuperLink(folder, arguments.timeout, simulation=True)
        output = folder / "output"
        with stopping(superlink.stop):
            superlink.start()
            status = superlink.run(
                config | {"output": str(output)}, simulated_nodes=arguments.nodes
            )
            check("the run is completed", status == "finished:completed", status)
            replies = arguments.cohort or arguments.nodes
            check_history(
                output,
                rounds=arguments.rounds,
                replies=replies,
                refusals=0,
                accuracy=arguments.accuracy,
            )


if __name__ == "__main__":
    main()
