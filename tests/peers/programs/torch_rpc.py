"""torch's RPC tests over TensorPipe, as PyTorch's test/distributed/rpc/test_tensorpipe_agent.py and
test_faulty_agent.py (v2.13) generate tests from them; PEER_START as in torch_distributed.py.
"""

import os

import torch
from torch.testing._internal.distributed import rpc_utils
from torch.testing._internal.distributed.rpc.faulty_rpc_agent_test_fixture import FaultyRpcAgentTestFixture
from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import TensorPipeRpcAgentTestFixture

if os.environ.get("PEER_START") == "fork":

    def fork_processes(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    rpc_utils.SpawnHelper._spawn_processes = fork_processes

globals().update(
    rpc_utils.generate_tests(
        "TensorPipe", TensorPipeRpcAgentTestFixture, rpc_utils.GENERIC_TESTS + rpc_utils.TENSORPIPE_TESTS, __name__
    )
)
globals().update(rpc_utils.generate_tests("Faulty", FaultyRpcAgentTestFixture, rpc_utils.FAULTY_AGENT_TESTS, __name__))
