"""The parts of the example app that need no servers: networks, data, certificates, and what is sent to the nodes."""

import shutil
import sys
import tomllib
import zipfile
from importlib import import_module
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-fashion"


@pytest.fixture
def example(monkeypatch):
    """Imports a module of the example, and forgets it afterwards: its names are not ours alone."""
    monkeypatch.syspath_prepend(EXAMPLE)
    yield import_module
    for name, module in list(sys.modules.items()):
        if str(EXAMPLE) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def config():
    settings = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"][
        "app"
    ]["config"]
    return settings | {"dataset": "digits"}


def test_nodes_and_server_share_the_training_set_without_overlap(example, config):
    task = example("flower_fashion.task")
    config |= {"public-examples": 200}
    parts = [task.public_examples(config)]
    parts += [
        task.node_examples(config, {"partition-id": i, "num-partitions": 3})
        for i in range(3)
    ]
    assert [len(part.labels) for part in parts] == [200, 413, 412, 412]
    everything = example("flower_fashion.data").load("digits")[0].images
    together = np.concatenate([part.images for part in parts])
    assert np.array_equal(np.unique(together, axis=0), np.unique(everything, axis=0))


def test_both_frameworks_take_the_same_steps(example, config):
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    from flwr.app import ArrayRecord

    task = example("flower_fashion.task")
    config |= {"local-steps": 3}
    examples = task.node_examples(config, {"partition-id": 0, "num-partitions": 10})
    ours, theirs = (
        task.network(config | {"framework": name}) for name in ("numpy", "torch")
    )
    start = theirs.initial(seed=5)
    state = start.to_torch_state_dict()
    flat = np.concatenate(
        [
            state[name].numpy().T.reshape(-1)
            for name in ("0.weight", "0.bias", "2.weight", "2.bias")
        ]
    )
    fitted = theirs.fit(start, examples, config, [1, 2])
    expected = ours.fit(
        ArrayRecord({"parameters": example("flwr.app").Array(flat)}),
        examples,
        config,
        [1, 2],
    )
    after = fitted.to_torch_state_dict()
    found = np.concatenate(
        [
            after[name].numpy().T.reshape(-1)
            for name in ("0.weight", "0.bias", "2.weight", "2.bias")
        ]
    )
    np.testing.assert_allclose(found, expected["parameters"].numpy(), rtol=0, atol=1e-5)
    assert np.abs(found - flat).max() > 1e-3
    test = task.test_examples(config)
    assert theirs.evaluate(fitted, test).accuracy == pytest.approx(
        ours.evaluate(expected, test).accuracy, abs=0.01
    )
    assert theirs.evaluate(fitted, test).loss == pytest.approx(
        ours.evaluate(expected, test).loss, abs=1e-4
    )
    assert torch.equal(start.to_torch_state_dict()["0.bias"], torch.zeros(32))


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_the_app_runs_in_one_process(example, config, framework, tmp_path):
    if framework == "torch":
        pytest.importorskip("torch", reason="needs the extra torch")
    from flwr.app import Context, RecordDict

    from tests.integrations.flower.local_grid import LocalGrid

    config |= {
        "framework": framework,
        "num-server-rounds": 2,
        "output": str(tmp_path / "output"),
    }
    grid = LocalGrid(
        example("flower_fashion.client_app").app,
        nodes=4,
        run_config=config,
        node_config=lambda node: {
            "sstq-ledger": str(tmp_path),
            "sstq-max-epsilon": 1.0 if node == 3 else 3.0,
        },
    )
    context = Context(1, 1, {}, RecordDict(), config)
    example("flower_fashion.server_app").app(grid=grid, context=context)
    check_history = example("checks").check_history
    check_history(tmp_path / "output", rounds=2, replies=3, refusals=1, accuracy=0.0)
    with pytest.raises(
        example("processes").NotAsExpectedError, match="sstq-replies is 4"
    ):
        check_history(
            tmp_path / "output", rounds=2, replies=4, refusals=0, accuracy=0.0
        )
    with np.load(tmp_path / "output" / "model.npz") as model:
        assert sum(model[name].size for name in model.files) == 2410


# Flower's, not ours
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_what_is_sent_to_nodes_is_the_package_alone(example, tmp_path):
    from flwr.cli.build import build_fab_from_disk

    copy = tmp_path / "flower-fashion"
    shutil.copytree(EXAMPLE, copy)
    example("certificates").make_certificates(copy / "state")
    example("certificates").make_node_key(copy / "flower_fashion" / "key")
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(copy))) as archive:
        names = set(archive.namelist())
    modules = {
        f"flower_fashion/{path.name}"
        for path in (EXAMPLE / "flower_fashion").glob("*.py")
    }
    assert names - {".info/CONTENT", "pyproject.toml", "README.md"} == modules
