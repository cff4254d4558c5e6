"""Checks that need a GPU: runs real CUDA programs under pytracer, measures costs, writes one JSON.

    python scripts/gpu_check.py --out gpu.json

Run it in a tree that was built where the GPU is (python setup.py build_ext --inplace). No network, no second GPU, less
than eight minutes. On the fake CUDA runtime (make test-cuda) it goes as far as possible and lists what it skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PROGRAMS = ROOT / "tests" / "cuda" / "programs"
BUDGET_SECONDS = 8 * 60
PROGRAM_SECONDS = 90

_ILLEGAL = '''
import torch
source = """extern "C" __global__ void far(const float* x, float* out) {
  out[threadIdx.x] = x[(1ull << 34) + threadIdx.x];
}"""
far = torch.cuda._compile_kernel(source, "far")
x = torch.ones(1 << 20, device="cuda")
out = torch.empty(256, device="cuda")
far(grid=(1, 1, 1), block=(256, 1, 1), args=[x, out])
torch.cuda.synchronize()
'''
_COMPILED = """
import torch
@torch.compile(mode="reduce-overhead")
def step(x): return torch.relu(x * 2 + 1).sum()
x = torch.ones(1 << 16, device="cuda")
for _ in range(6): step(x)
torch.cuda.synchronize()
print("compiled")
"""
_NCCL = """
import os, torch, torch.distributed as dist, time
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29677", RANK="0", WORLD_SIZE="1")
torch.cuda.set_device(0)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
x = torch.ones(1024, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
time.sleep(2.5)
dist.destroy_process_group()
"""
_COSTS = """
import json, sys, time, torch
def per_call(act, n):
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize(); begin = time.perf_counter_ns()
        for _ in range(n): act()
        best = min(best, (time.perf_counter_ns() - begin) / n)
    return round(best, 1)
torch.empty(1024, device="cuda")
static = torch.ones(1024, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): out = static * 2
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = torch.ones(64, 512, device="cuda")
def step():
    optimizer.zero_grad(); model(data).sum().backward(); optimizer.step()
for _ in range(5): step()
print(json.dumps({
    "allocation_and_free_ns": per_call(lambda: torch.empty(1024, device="cuda"), 20000),
    "replay_ns": per_call(graph.replay, 2000),
    "step_ns": per_call(step, 50)}))
"""


class Skipped(Exception):
    """This machine cannot run the check."""


class Checks:
    """Runs them one after the other and keeps what each found."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.began = time.monotonic()
        self.results: dict[str, dict[str, Any]] = {}

    def run(self, name: str, check: Callable[[Path], dict[str, Any]]) -> None:
        """`check` returns what it measured; an AssertionError is a failure."""
        if time.monotonic() - self.began > BUDGET_SECONDS - PROGRAM_SECONDS:
            self.results[name] = {"result": "skipped", "why": "the time is used up"}
            return
        begin = time.monotonic()
        run = self.directory / name.replace(" ", "-")
        try:
            self.results[name] = {"result": "passed", **check(run)}
        except Skipped as reason:
            self.results[name] = {"result": "skipped", "why": str(reason)}
        except Exception as error:
            self.results[name] = {"result": "failed", "why": f"{type(error).__name__}: {error}"[:2000]}
        self.results[name]["seconds"] = round(time.monotonic() - begin, 1)
        print(f"{self.results[name]['result']:8} {name}  {self.results[name].get('why', '')[:120]}", file=sys.stderr)


def main() -> int:
    """Exit status 1 when something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"))
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="Leave a check out; repeatable.")
    options = parser.parse_args()
    import torch

    fake = "Fake" in (torch.cuda.get_device_name(0) if torch.cuda.is_available() else "")
    with tempfile.TemporaryDirectory(prefix="pytracer-gpu-") as directory:
        checks = Checks(Path(directory))
        for name, check in (
            ("doctor", doctor),
            ("block", lambda run: host_fault(run, "block0")),
            ("freed block", lambda run: host_fault(run, "freed")),
            ("private pool", lambda run: host_fault(run, "private_pool")),
            (
                "expandable segments",
                lambda run: host_fault(run, "block0", PYTORCH_ALLOC_CONF="expandable_segments:True"),
            ),
            ("graph replay without its input", graph_replay),
            ("healthy graph replay", healthy_replay),
            ("illegal access", lambda run: illegal_access(run, fake)),
            ("cudagraph trees of inductor", lambda run: compiled(run, fake)),
            ("nccl with one rank", nccl),
            ("costs", costs),
        ):
            if name not in options.skip:
                checks.run(name, check)
    report = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "fake": fake,
        "seconds": round(time.monotonic() - checks.began, 1),
        "checks": checks.results,
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written: {options.out}", file=sys.stderr)
    return int(any(item["result"] == "failed" for item in checks.results.values()))


def traced(run: Path, *command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """A program under `pytracer run`."""
    return plain("-m", "pytracer", "run", "-o", str(run), "--", sys.executable, *command, **extra)


def plain(*command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """A program as it is."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **extra}
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )


def report_of(run: Path) -> Any:
    """The run, judged."""
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.merge import load_job

    return build_report(load_job(run))


def doctor(run: Path) -> dict[str, Any]:
    """The row about CUDA."""
    from pytracer.cli.checks.cuda import check_cuda

    found = check_cuda()
    assert found.result == "works", found.detail
    return {"says": found.detail}


def host_fault(run: Path, which: str, **extra: str) -> dict[str, Any]:
    """Host code reads device memory: the block is named."""
    done = traced(run, str(PROGRAMS / "host_fault.py"), which, **extra)
    assert done.returncode == 139, done.stderr[-1000:]
    report = report_of(run)
    assert report.verdict.class_ == "device-pointer-on-host", report.verdict.summary
    return {"says": report.verdict.summary}


def graph_replay(run: Path) -> dict[str, Any]:
    """Replayed after `del static_input`."""
    done = traced(run, str(PROGRAMS / "graph_replay.py"), "deleted", "well", PYTRACER_CUDA_GRAPHS="warn")
    assert done.returncode == 0 and "CudaGraphWarning" in done.stderr, done.stderr[-1000:]
    graphs = [graph for process in report_of(run).processes for graph in process.cuda_graphs or []]
    assert [graph.broken_replays for graph in graphs] == [2]
    return {"inputs": graphs[0].broken_inputs}


def healthy_replay(run: Path) -> dict[str, Any]:
    """Silence."""
    done = traced(run, str(PROGRAMS / "graph_replay.py"), "kept", "well", PYTRACER_CUDA_GRAPHS="warn")
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr[-1000:]
    return {}


def illegal_access(run: Path, fake: bool) -> dict[str, Any]:
    """A kernel touches memory that is not there: the device's core dump has it, and the address."""
    if fake:
        raise Skipped("kernels do not run on the fake runtime")
    done = plain("-m", "pytracer", "run", "--gpu-core", "-o", str(run), "--", sys.executable, "-c", _ILLEGAL)
    assert done.returncode != 0
    report = report_of(run)
    assert report.verdict.class_ == "cuda-error", report.verdict.summary
    cores = [process.gpu_core for process in report.processes if process.gpu_core is not None]
    dumps = [path.stat().st_size for path in (run / "gpu-cores").glob("*")]
    found = {"says": report.verdict.summary, "evidence": report.verdict.evidence, "core_dump_bytes": dumps}
    assert cores and cores[0].exceptions, {**found, "problem": [core.problem for core in cores]}
    assert cores[0].exceptions[0].kernel == "far", found
    return {**found, "kernel": cores[0].exceptions[0].kernel, "problem": cores[0].problem}


def compiled(run: Path, fake: bool) -> dict[str, Any]:
    """torch.compile(mode="reduce-overhead") captures and replays."""
    if fake:
        raise Skipped("Triton cannot compile for the fake runtime")
    done = traced(run, "-c", _COMPILED)
    assert done.returncode == 0 and "compiled" in done.stdout, done.stderr[-1000:]
    graphs = [graph for process in report_of(run).processes for graph in process.cuda_graphs or []]
    assert graphs and all(graph.broken_replays == 0 for graph in graphs)
    return {"graphs": len(graphs), "replays": sum(graph.replays for graph in graphs)}


def nccl(run: Path) -> dict[str, Any]:
    """A collective is completed in the recording."""
    from pytracer.decode.job.merge import load_job

    done = traced(run, "-c", _NCCL)
    assert done.returncode == 0, done.stderr[-1000:]
    states = {item.state for process in load_job(run).processes for item in process.snapshot.collectives}
    assert states == {"completed"}, states
    return {}


def costs(run: Path) -> dict[str, Any]:
    """Minimum of five rounds each, without and with recording."""
    without, recorded = plain("-c", _COSTS), traced(run, "-c", _COSTS)
    assert without.returncode == 0, without.stderr[-1000:]
    assert recorded.returncode == 0, recorded.stderr[-1000:]
    return {"without": json.loads(without.stdout), "recorded": json.loads(recorded.stdout)}


if __name__ == "__main__":
    sys.exit(main())
