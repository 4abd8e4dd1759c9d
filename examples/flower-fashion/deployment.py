"""A real deployment on this machine: a SuperLink and three SuperNodes, with TLS and node authentication.

    python deployment.py --dataset digits --rounds 2

makes certificates and keys, starts everything on free ports, registers the nodes, runs the app, checks what came of it
and stops everything, whatever happens. One node allows less ε than the app asks for: it refuses, and the training goes
on with the other two. A fourth node, whose key nobody registered, is turned away.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certificates import make_node_key
from checks import check, check_history, check_ledger
from command import folder_for, parser_of, stopping
from processes import Process, free_ports, stop, wait_until
from superlink import SuperLink, as_toml


@dataclass(frozen=True)
class Node:
    """A SuperNode, and the greatest ε of one message that its operator allows."""

    name: str
    max_epsilon: float


NODES = (Node("node-1", 4.0), Node("node-2", 4.0), Node("cautious", 1.0))
STRANGER = Node("stranger", 4.0)


class Deployment:
    """A SuperLink and its SuperNodes, each with a folder of its own as if on a machine of its own.

    Args:
        folder: for all of their files.
        timeout: seconds to wait for anything.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        self.folder = folder
        self._timeout = timeout
        self._superlink = SuperLink(folder, timeout, simulation=False)
        self._nodes: list[Process] = []

    def run(self, config: dict[str, Any]) -> None:
        """Start everything, run the app, and check what came of it."""
        self._superlink.start()
        for node in (*NODES, STRANGER):
            make_node_key(self._key(node))
        for node in NODES:
            self._superlink.register(node.name, self._key(node).with_suffix(".pub"))
        *nodes, stranger = [
            self._start_node(node, number)
            for number, node in enumerate((*NODES, STRANGER))
        ]
        status = self._superlink.run(config, nodes)

        check("the run is completed", status == "finished:completed", status)
        wait_until(
            "the stranger has ended",
            lambda: stranger.exit_code is not None,
            [],
            self._timeout,
        )
        turned_away = (
            bool(stranger.exit_code)
            and "Failed to activate SuperNode" in stranger.text()
        )
        check(
            "the node without a registered key was turned away",
            turned_away,
            stranger.log,
        )
        for process in nodes:
            # The server is not told of a failed training, since that may depend on data; the node's own log has it.
            check(
                f"{process.name} trained without failure",
                "the training failed" not in process.text(),
                process.log,
            )
        rounds = config["num-server-rounds"]
        epsilon = config["epsilon"]
        willing = [node for node in NODES if node.max_epsilon >= epsilon]
        refusals = len(NODES) - len(willing)
        check_history(
            Path(config["output"]),
            rounds=rounds,
            replies=len(willing),
            refusals=refusals,
            accuracy=0.3,
        )
        for node in NODES:
            ledger = self.folder / node.name / "ledger" / f"{node.name}.ledger"
            check_ledger(
                node.name, ledger, rounds * epsilon if node in willing else 0.0
            )

    def stop(self) -> None:
        """Stop the nodes, and then the SuperLink, of which they take their leave."""
        stop(self._nodes)
        self._superlink.stop()

    def _start_node(self, node: Node, number: int) -> Process:
        """Start a SuperNode; what its operator allows is in its configuration."""
        config = {
            "partition-id": number % len(NODES),
            "num-partitions": len(NODES),
            "sstq-max-epsilon": node.max_epsilon,
            "sstq-total-epsilon": 100.0,
            "sstq-node": node.name,
            "sstq-ledger": str(self.folder / node.name / "ledger"),
        }
        (port,) = free_ports(1)
        command = ["flower-supernode", "--superlink", self._superlink.address]
        command += ["--root-certificates", str(self._superlink.ca_certificate)]
        command += ["--auth-supernode-private-key", str(self._key(node))]
        command += ["--node-config", as_toml(config)]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        process = self._superlink.start_process(node.name, command)
        self._nodes.append(process)
        return process

    def _key(self, node: Node) -> Path:
        return self.folder / node.name / "key"


def main() -> None:
    """Deploy, check and stop."""
    arguments = parser_of(__doc__, rounds=3).parse_args()
    config = {
        "dataset": arguments.dataset,
        "framework": arguments.framework,
        "num-server-rounds": arguments.rounds,
        "min-nodes": len(NODES),
        "epsilon": arguments.epsilon,
        "clip": 0.05,
        # A few rounds of two messages are too few to begin from nothing.
        "public-examples": {"fashion-mnist": 1000, "digits": 200}[arguments.dataset],
    }
    with folder_for(arguments.folder) as folder:
        deployment = Deployment(folder, arguments.timeout)
        with stopping(deployment.stop):
            deployment.run(config | {"output": str(folder / "output")})


if __name__ == "__main__":
    main()
