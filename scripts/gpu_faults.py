"""Runs programs whose fault on a GPU is known, and counts how often the report is right.

    python scripts/gpu_faults.py                          all of tests/gpu/*.toml, eight at a time
    python scripts/gpu_faults.py label_range cache_put    these
    python scripts/gpu_faults.py --again                  reads the kept recordings with the rules as they are now
    python scripts/gpu_faults.py --list                   what there is, and what really happens

Needs a GPU, Python 3.11, torch for CUDA, and for some programs Triton, NVRTC and CuPy; without these they are left out.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.gpu.judge import FACETS, Fault, Judged, faults, judge  # noqa: E402

SECONDS = 100  # for one program
_MISSING = "No module named"


def main() -> int:
    """Exit status 1 when a report was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", metavar="FAULT", help="Only these.")
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "build" / "gpu-faults", help="Where recordings are kept."
    )
    parser.add_argument("-n", "--jobs", type=int, default=8, help="Programs at a time.")
    parser.add_argument("--again", action="store_true", help="Run nothing; read the kept recordings.")
    parser.add_argument("--run-only", action="store_true", help="Record, and judge nothing.")
    parser.add_argument("--list", action="store_true", help="Print the programs, and run nothing.")
    options = parser.parse_args()
    chosen = [fault for fault in faults() if not options.ids or fault.id in options.ids]
    unknown = set(options.ids) - {fault.id for fault in chosen}
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; --list has their names")
    if options.list:
        print("\n".join(f"{fault.id:24} {fault.truth}" for fault in chosen))
        return 0
    options.directory.mkdir(parents=True, exist_ok=True)
    if not options.again:
        for dumping in (False, True):
            share = [fault for fault in chosen if takes_turns(fault) == dumping]
            with ThreadPoolExecutor(options.jobs) as pool:
                ends = pool.map(lambda item: record(item, options.directory), share)
                for fault, words in zip(share, ends, strict=True):
                    print(f"{fault.id:24} {words}", flush=True)
    if options.run_only:
        return 0
    return tell([judged for fault in chosen if (judged := judged_of(fault, options.directory)) is not None])


def takes_turns(fault: Fault) -> bool:
    """Whether it has the device for itself, for the sake of its core dump."""
    return "--gpu-core" in fault.options and fault.ranks == 1 and not fault.limit_s


def record(fault: Fault, directory: Path) -> str:
    """Runs a program under `pytracer run`; returns how it ended."""
    own = directory / fault.id
    own.mkdir(exist_ok=True)
    program: list[str] = [sys.executable, str(fault.path)]
    if fault.ranks > 1:
        launcher = ["--nproc-per-node", str(fault.ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        program = [sys.executable, "-m", "torch.distributed.run", *launcher, str(fault.path)]
    if fault.limit_s:
        program = ["timeout", "-s", "TERM", str(fault.limit_s), *program]
    command = [
        sys.executable,
        "-m",
        "pytracer",
        "run",
        "--force",
        "-o",
        str(own / "run"),
        *fault.options,
        "--",
        *program,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if takes_turns(fault):
        env["PYTHONPATH"] += f":{ROOT / 'tests' / 'gpu' / 'one_at_a_time'}"
        env["PYTRACER_GPU_LOCK"] = str(directory / "lock")
    begin = time.monotonic()
    with (own / "output").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)
        try:
            status: int | None = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    (own / "status").write_text(f"{status}\n", encoding="utf-8")
    return f"status {status}, {time.monotonic() - begin:.1f} s"


def judged_of(fault: Fault, directory: Path) -> Judged | None:
    """None when there is no recording, or when the machine lacks a package of the program's."""
    run = directory / fault.id / "run"
    if not run.is_dir():
        return None
    judged = judge(fault, run)
    return None if _MISSING in judged.summary else judged


def tell(judged: Sequence[Judged]) -> int:
    """Prints what is wrong, and the counts."""
    for item in judged:
        if item.wrong:
            print(f"{item.fault.id}: wrong: {', '.join(item.wrong)}: {item.class_} ({item.confidence}): {item.summary}")
    right = sum(not item.wrong for item in judged)
    facets = ", ".join(f"{facet} {sum(facet not in item.wrong for item in judged)}" for facet in FACETS)
    worst = sum("class" in item.wrong and item.confidence == "certain" for item in judged)
    print(f"{right} of {len(judged)} right in everything; {facets}; wrong class called certain: {worst}")
    return int(right < len(judged))


if __name__ == "__main__":
    sys.exit(main())
