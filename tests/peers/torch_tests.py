"""torch's own tests: DistributedTest over gloo, and the sweep over all operators' samples."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping

from tests.peers.peer import ENVIRONMENT, LAUNCHER, PROGRAMS, Peer, Results, Setting, unittests

SWEEP_MODES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "default": (LAUNCHER, ()),
    "ops": (LAUNCHER, ("--level", "ops")),
    "guard": (LAUNCHER, ("--guard=all",)),
    "environment": (ENVIRONMENT, ()),
}


def _no_torch_tests() -> str:
    missing = [name for name in ("torch", "expecttest") if not importlib.util.find_spec(name)]
    return f"{', '.join(missing)} not installed" if missing else ""


def _distributed(at: Setting) -> Results:
    store = at.work / "store"
    store.mkdir()
    environment = {
        "WORLD_SIZE": "2", "BACKEND": "gloo", "TEMP_DIR": str(store), "INIT_METHOD": f"file://{store}/init",
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    for name in ("barrier", "test_dir", "init_dir"):
        (store / name).mkdir()
    words = ["torch_distributed.TestDistBackendWithSpawn"]
    return unittests(at, sys.executable, words, seconds=3600, PYTHONPATH=_path(), **environment)


def _path() -> str:
    import os

    from tests.support.cli import ROOT

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
    """Both; a thirtieth of the sweep is quick."""
    yield Peer("torch operators, a part", functools.partial(_sweep, 30), _no_torch_tests, quick=True, modes=SWEEP_MODES)
    yield Peer("torch operators", functools.partial(_sweep, 1), _no_torch_tests, slow=True, modes=SWEEP_MODES)
    yield Peer("torch DistributedTest", _distributed, _no_torch_tests, slow=True)
