"""torch's DistributedTest, as PyTorch's test/distributed/test_distributed_spawn.py (v2.13) makes tests of it."""

import torch
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

torch.backends.cuda.matmul.allow_tf32 = False


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    """One process for each rank, started by torch.multiprocessing's spawn."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()
