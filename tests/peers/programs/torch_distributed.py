"""torch's DistributedTest, as PyTorch's test/distributed/test_distributed_spawn.py (v2.13) generates tests from it.

PEER_START=fork starts the ranks by fork: seconds less for each test, since torch is imported once.
"""

import os

import torch
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

torch.backends.cuda.matmul.allow_tf32 = False


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    """One process for each rank, started by torch.multiprocessing."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()

    def _spawn_processes(self):
        if os.environ.get("PEER_START") == "fork":
            self._start_processes(torch.multiprocessing.get_context("fork").Process)
        else:
            super()._spawn_processes()
