"""The fake CUDA runtime behaves as its README documents, through torch's own CUDA code."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.crash import ended, environment, torchrun

pytestmark = pytest.mark.fake_cuda
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def basics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of runtime_basics.py."""
    done = ended([sys.executable, PROGRAMS / "runtime_basics.py"], environment(), tmp_path_factory.mktemp("b") / "run")
    assert done.status == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_copies_are_real_and_devices_two(basics: dict[str, Any]) -> None:
    """Data copied to a device and back are unchanged."""
    assert basics["devices"] == 2
    assert basics["copied"] == list(range(10))
    assert basics["other_device"] == "cuda:1"


def test_kernels_are_captured_and_replays_counted(basics: dict[str, Any]) -> None:
    """A capture records its kernels and has a private pool; a wait inside it is refused."""
    assert basics["captured"] >= 2
    assert basics["replays"] == 2
    assert len(basics["pools"]) == 2
    assert "error during capture" in basics["wait_in_capture"]


def test_work_can_hang(basics: dict[str, Any]) -> None:
    """An event recorded while the device hangs does not complete before the hang ends."""
    assert (basics["done_while_hanging"], basics["done_afterwards"]) == (False, True)


def test_memory_is_limited(basics: dict[str, Any]) -> None:
    """torch's allocator reports that the device is full."""
    assert "CUDA out of memory" in basics["out_of_memory"]


def test_a_faulting_kernel_is_told_later(basics: dict[str, Any]) -> None:
    """Its launch succeeds; the next wait raises."""
    assert basics["launch_accepted"]
    assert "an illegal memory access was encountered" in basics["sticky"]


def test_host_access_faults_at_the_device_address(run: Path) -> None:
    """Reading a device address on the host is a real SIGSEGV."""
    words = "import ctypes, torch; x = torch.ones(64, device='cuda'); ctypes.string_at(x.data_ptr() + 64, 4)"
    done = ended([sys.executable, "-c", words], environment(), run)
    assert done.status == -signal.SIGSEGV


def test_ranks_wait_for_each_other(run: Path) -> None:
    """A collective completes when all ranks have called it, as on hardware; splits and messages too."""
    done = ended(torchrun(PROGRAMS / "nccl_ranks.py"), environment(), run)
    assert done.status == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {
        "data": [float(i) for i in range(8)],
        "done_alone": False,
        "done_together": True,
        "gathered": [float(i) for i in range(8)],
    }
