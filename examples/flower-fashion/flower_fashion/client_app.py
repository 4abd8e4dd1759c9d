"""What runs on a node: a few steps of training, of which one private message leaves."""

from __future__ import annotations

import os
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from flower_fashion import task
from sstq.integrations.flower import SstqMod

app = ClientApp()

# For nodes whose operator says nothing, as in a simulation. With `flower-supernode --node-config` an operator sets
# smaller caps (sstq-max-epsilon, sstq-total-epsilon) and another place for the ledger (sstq-ledger).
private = SstqMod(
    max_epsilon=4.0,
    total_epsilon=100.0,
    ledger=Path(os.environ.get("FLWR_HOME", "~/.flwr")) / "sstq-ledgers",
)


# There is no @app.evaluate: a loss or accuracy of a node's own examples would leave it in clear.
@app.train(mods=[private])
def train(message: Message, context: Context) -> Message:
    """Train the model that the server sent on the examples of this node."""
    config = context.run_config
    node = context.node_config
    examples = task.node_examples(config, node)
    seed = [
        int(config["seed"]),
        int(node["partition-id"]),
        int(message.content["config"]["server-round"]),
    ]
    arrays = task.network(config).fit(
        message.content.array_records["arrays"], examples, config, seed
    )
    return Message(RecordDict({"arrays": arrays}), reply_to=message)
