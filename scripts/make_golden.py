"""Records the jobs of tests/golden anew: run it when a version is released, never to make a test pass.

    python scripts/make_golden.py --version 0.1            into tests/golden/0.1
    python scripts/make_golden.py --version 0.1 --reports  the reports only, from the recordings that are there

Each recording is the run directory of a job that died, as a .tar.xz, with the report by the reader of the same
version beside it. Names of native functions are in its symbols.json, so the reader needs none of the job's libraries.
Paths in a recording are those of the tree that it ran in: record in one that is mounted at a neutral path, such as
/srv/train, and create the reports (--reports) where that path does not exist, as on the machines that run the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.distributed.faults import MALLOC  # noqa: E402
from tests.golden.reports import GOLDEN, report_of, unpacked  # noqa: E402
from tests.support.crash import compiled  # noqa: E402

CRASH, DISTRIBUTED = "tests/crash/programs", "tests/distributed/programs"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
# As long as the true path: a recording has offsets.
PYTHON = sys.base_prefix.encode()
NEUTRAL = b"/opt/python".ljust(len(PYTHON), b"_")


class Job(NamedTuple):
    """What Python runs, options of `pytracer run`, and more for the environment."""

    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    environment: dict[str, str] = {}  # noqa: RUF012  # never written


JOBS = {
    "ddp-use-after-free": Job((*TORCHRUN, "2", "examples/ddp_use_after_free.py")),
    "null-in-step": Job(("examples/null_in_step.py",)),
    "stack-overflow": Job((f"{CRASH}/stack_overflow.py", "main")),
    "truncated-mapping": Job((f"{CRASH}/truncated_mapping.py",)),
    "illegal-instruction": Job((f"{CRASH}/illegal_instruction.py",)),
    "storage-swapped": Job((f"{CRASH}/stale_address.py", "set")),
    "stale-grad": Job((f"{CRASH}/stale_address.py", "zero_grad")),
    "out-of-bounds": Job((f"{CRASH}/overrun.py",)),
    "fault-on-thread": Job((f"{CRASH}/fault_on_python_thread.py",)),
    "guard-use-after-free": Job((f"{CRASH}/guard_use_after_free.py",), options=("--guard",)),
    "worker-fault": Job((f"{CRASH}/dataloader_worker_fault.py",)),
    "released-in-collective": Job((*TORCHRUN, "2", f"{CRASH}/resized_in_collective.py")),
    "collective-mismatch": Job((*TORCHRUN, "3", f"{DISTRIBUTED}/disagreements.py", "op")),
    "sigkill": Job((*TORCHRUN, "3", f"{DISTRIBUTED}/deaths.py", "killed")),
    "slow-cleanup": Job((*TORCHRUN, "3", f"{DISTRIBUTED}/deaths.py", "slow_cleanup")),
    "fsdp2": Job((*TORCHRUN, "2", f"{DISTRIBUTED}/sharding.py", "local_shard"), environment=MALLOC),
}


def record(name: str, target: Path, faults: Path) -> None:
    """Runs one job under the recorder and packs its run directory, without the report."""
    job = JOBS[name]
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / name
        environment = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        environment |= {"FAULTS_LIBRARY": str(faults), **job.environment}
        subprocess.run(
            [sys.executable, "-m", "pytracer", "run", "-o", str(run), *job.options, "--", sys.executable, *job.command],
            env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        if not (run / "report.json").exists():
            raise SystemExit(f"{name}: the job left no report; it should have died")
        (run / "report.json").unlink()
        pack(run, target / f"{name}.tar.xz")


def pack(run: Path, archive: Path) -> None:
    """A run directory as an archive, in which Python's path is not the one on this machine."""
    for file in (path for path in run.rglob("*") if path.is_file()):
        file.write_bytes(file.read_bytes().replace(PYTHON, NEUTRAL))
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(run, arcname=run.name)


def main() -> int:
    """Records, then writes the reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--reports", action="store_true", help="leave the recordings as they are")
    parser.add_argument("names", nargs="*", metavar="JOB", help="only these")
    given = parser.parse_args()
    target = GOLDEN / given.version
    target.mkdir(exist_ok=True)
    libraries = ROOT / "build" / "golden"
    libraries.mkdir(parents=True, exist_ok=True)
    faults = compiled(libraries)
    for name in given.names or JOBS:
        if not given.reports:
            record(name, target, faults)
        with tempfile.TemporaryDirectory() as directory:
            text = report_of(unpacked(target / f"{name}.tar.xz", Path(directory)))
        (target / f"{name}.json").write_text(text, encoding="utf-8")
        size = (target / f"{name}.tar.xz").stat().st_size
        print(f"{name}: {size >> 10} KiB, {text.count(chr(10))} lines", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
