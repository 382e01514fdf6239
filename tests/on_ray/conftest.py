"""A Ray cluster of two nodes on this machine, each with processes and a CPU of its own."""

import contextlib
import logging
import os
import sys

import pytest

VARIABLES = {"RAY_DEDUP_LOGS": "0", "RAY_TRAIN_ENABLE_STATE_TRACKING": "0"}


class TwoNodes:
    """A cluster to which nodes come and which they leave."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        self._small = small
        self._cluster = Cluster(
            initialize_head=True, head_node_args={**small, "include_dashboard": False}
        )
        self.address = self._cluster.address
        self._second = None
        self.complete()

    def complete(self):
        """Have the second node there."""
        if self._second is None:
            self._second = self._cluster.add_node(**self._small)
            self._cluster.wait_for_nodes()

    def is_on_second(self, actor):
        """Say whether an actor runs on the second node."""
        from ray._private.state import actors

        return actors(actor._actor_id.hex())["Address"]["NodeID"] == self._second.node_id

    def kill_second(self):
        """Kill all processes of the second node, in the middle of whatever they do."""
        self._cluster.remove_node(self._second, allow_graceful=False)
        self._second = None

    def close(self):
        self._cluster.shutdown()


@pytest.fixture(scope="module")  # others start Ray as well, in the same process
def two_nodes():
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        # What nodes start has the variables of whoever starts the nodes.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        nodes = TwoNodes()
        stack.callback(nodes.close)
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
        stack.callback(ray.shutdown)
        yield nodes
