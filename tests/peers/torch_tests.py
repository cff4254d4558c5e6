"""torch's own tests: DistributedTest over gloo, RPC over TensorPipe, and the sweep over all operators' samples."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping

from tests.peers.peer import (
    ENVIRONMENT,
    LAUNCHER,
    PROGRAMS,
    Peer,
    Results,
    Setting,
    no_source,
    source_tree,
    unittests_in_slices,
)
from tests.support.cli import ROOT

SWEEP_MODES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "default": (LAUNCHER, ()),
    "ops": (LAUNCHER, ("--level", "ops")),
    "guard": (LAUNCHER, ("--guard=all",)),
    "environment": (ENVIRONMENT, ()),
}

SLICE, SLICE_SECONDS = 20, 600


def _no_torch_tests() -> str:
    missing = [name for name in ("torch", "expecttest") if not importlib.util.find_spec(name)]
    return f"{', '.join(missing)} not installed" if missing else ""


def _no_rpc() -> str:
    why = _no_torch_tests()
    if why:
        return why
    import torch

    return "" if hasattr(torch._C, "_rpc_init") else "this torch has no RPC"


def _distributed(module: str, start: str, at: Setting) -> Results:
    """Several ranks for each test; a limit for each test, too, shorter than torch's."""
    store = at.work / "store"
    for name in ("barrier", "test_dir", "init_dir"):
        (store / name).mkdir(parents=True)
    environment = {
        "WORLD_SIZE": "2", "BACKEND": "gloo", "TEMP_DIR": str(store), "INIT_METHOD": f"file://{store}/init",
        "GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "60",
        "PEER_START": start,
    }  # fmt: skip
    return unittests_in_slices(
        at, sys.executable, [module], size=SLICE, seconds=SLICE_SECONDS, PYTHONPATH=_path(), **environment
    )


def _multiprocessing(at: Setting) -> Results:
    source = source_tree("pytorch")
    assert source is not None
    path = os.pathsep.join([_path(), str(source / "test")])
    names = ["torch_multiprocessing"]
    return unittests_in_slices(at, sys.executable, names, size=SLICE, seconds=SLICE_SECONDS, PYTHONPATH=path)


def _path() -> str:
    return os.pathsep.join([str(ROOT), str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])


def _sweep(every: int, at: Setting) -> Results:
    found = at.work / "sweep.jsonl"
    done = at.run(
        [sys.executable, PROGRAMS / "operators.py", found, str(max(every, at.every))], seconds=3600, PYTHONPATH=_path()
    )
    results: Results = {"exit status": str(done.status)}
    if found.exists():
        results |= dict(json.loads(line) for line in found.read_text(encoding="utf-8").splitlines())
    return results


def peers() -> Iterator[Peer]:
    """All peers of this file; a thirtieth of the sweep is quick."""
    yield Peer("torch operators, a part", functools.partial(_sweep, 30), _no_torch_tests, quick=True, modes=SWEEP_MODES)
    yield Peer("torch operators", functools.partial(_sweep, 1), _no_torch_tests, slow=True, modes=SWEEP_MODES)
    yield Peer("torch multiprocessing", _multiprocessing, lambda: _no_torch_tests() or no_source("pytorch"), slow=True)
    for name, module, why_not in (
        ("torch DistributedTest", "torch_distributed", _no_torch_tests), ("torch RPC", "torch_rpc", _no_rpc),
    ):  # fmt: skip
        for start in ("fork", "spawn"):
            act = functools.partial(_distributed, module, start)
            yield Peer(f"{name} by {start}", act, why_not, slow=True)
