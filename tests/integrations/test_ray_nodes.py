"""A machine of a Ray cluster is lost while it works: its processes are killed, and its results with them."""

import os
import signal
import time
from contextlib import suppress
from threading import Thread

import numpy as np
import pytest
import ray

import sstq
from sstq.integrations.ray import add_files, connected


@pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning")
@pytest.mark.filterwarnings("ignore:(unclosed file|subprocess .* is still running):ResourceWarning")
def test_a_node_that_is_lost_with_its_tasks_changes_nothing(tmp_path, seed, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    mechanism = sstq.SSTQ(dim=6, epsilon=4.0, bits=3)
    paths = [tmp_path / f"{number}.sstq" for number in range(8)]
    for path in paths:
        sstq.write_messages(path, mechanism.encode(np.random.default_rng(seed).standard_normal((50, 6)) / 4))
    plain = type(mechanism.aggregator())

    class Slow(plain):
        """Says on which node it reads a file, and waits there until it has been seen."""

        def _add(self, messages):
            node = ray.get_runtime_context().get_node_id()
            (tmp_path / f"{node}.{os.getpid()}.{time.monotonic_ns()}").touch()
            while not (tmp_path / "go").exists():
                time.sleep(0.05)
            super()._add(messages)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        doomed = cluster.add_node(num_cpus=1)
        with connected(cluster.address):
            aggregator = Slow(mechanism)
            outcomes = add_files(aggregator, paths)
            killer = Thread(target=lose_when_it_works, args=(cluster, doomed, tmp_path), daemon=True)
            killer.start()
            assert [added for _, added in outcomes] == [True] * len(paths)
            killer.join()
    finally:
        cluster.shutdown()
    expected = plain(mechanism)
    for path in paths:
        expected.update_from_file(path)
    for name, built in (("there", aggregator), ("here", expected)):
        built.save(tmp_path / name)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    # The file that the lost node was reading was read again.
    assert len(list(tmp_path.glob("*.*.*"))) > len(paths)


def lose_when_it_works(cluster, node, folder):
    while not list(folder.glob(f"{node.node_id}.*")):
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)
    # A worker outlives its node's manager for a moment, in which it could still finish.
    for marker in folder.glob(f"{node.node_id}.*"):
        with suppress(ProcessLookupError):
            os.kill(int(marker.name.split(".")[1]), signal.SIGKILL)
    (folder / "go").touch()
