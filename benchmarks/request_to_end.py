"""How long does a rank take to write its stacks when it is asked to end, and how long does `pytracer doctor` take?

    python benchmarks/request_to_end.py                   tables
    python benchmarks/request_to_end.py --rounds 5        fewer

A rank waits for a queue, with gloo's threads and six of its own. Another process, as a scheduler does, sends SIGTERM;
the clock runs until the kernel reports the end of the process. Untraced and traced ones take turns.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import machine, progress

ROOT = Path(__file__).resolve().parent.parent
RANK = """
import os, queue, sys, threading
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
def reader(number): queue.Queue().get()
for number in range(6): threading.Thread(target=reader, args=(number,), daemon=True).start()
with open(f"{sys.argv[1]}/new", "w") as file: file.write(str(os.getpid()))
os.rename(f"{sys.argv[1]}/new", f"{sys.argv[1]}/pid")
queue.Queue().get()
"""
WAYS = ("untraced", "environment", "pytracer run")
SECONDS = 60
DOCTORS = 10


def one(way: str) -> tuple[float, int, int]:
    """Milliseconds from the signal to the end, threads, and those with a Python stack in the recording."""
    with tempfile.TemporaryDirectory(prefix="request-") as directory:
        run = Path(directory, "run")
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("PYTRACER_", "LD_PRELOAD"))}
        environment |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", RANK, directory]
        if way == "environment":
            (run / "boxes").mkdir(parents=True, mode=0o700)
            core = str(ROOT / "pytracer" / "libpytracer_core.so")
            environment |= {"LD_PRELOAD": core, "PYTRACER_DIR": str(run), "PYTRACER_LAUNCHER": "1"}
        elif way == "pytracer run":
            command = [sys.executable, "-m", "pytracer", "run", "-o", str(run), "--", *command]
        # A parent that is a Python program and ends its own children gets no stacks: this process is none.
        job = subprocess.Popen(
            ["/bin/sh", "-c", '"$@" & wait', "sh", *command], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            pid = _pid(Path(directory, "pid"))
            time.sleep(0.3)
            threads = len(os.listdir(f"/proc/{pid}/task"))
            held = os.pidfd_open(pid)
            poll = select.poll()
            poll.register(held, select.POLLIN)
            begin = time.monotonic_ns()
            signal.pidfd_send_signal(held, signal.SIGTERM)
            poll.poll(SECONDS * 1000)
            took = (time.monotonic_ns() - begin) / 1e6
            os.close(held)
        finally:
            job.wait(SECONDS)
        return took, threads, 0 if way == "untraced" else _stacks(run, pid)


def _pid(file: Path) -> int:
    until = time.monotonic() + SECONDS
    while not file.exists():
        if time.monotonic() > until:
            sys.exit("request_to_end: the rank did not start")
        time.sleep(0.02)
    return int(file.read_text(encoding="ascii"))


def _stacks(run: Path, pid: int) -> int:
    from pytracer.analyze.engine import build_report
    from pytracer.decode.job.merge import load_job

    [rank] = [process for process in build_report(load_job(run)).processes or () if process.pid == pid]
    return sum(bool(thread.python_stack) for thread in rank.threads or ())


def doctor() -> tuple[float, float]:
    """Seconds by the clock, and of CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pytracer", "doctor"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    took = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def document(rounds: int) -> dict[str, Any]:
    """Everything, in turns."""
    found: dict[str, list[tuple[float, int, int]]] = {way: [] for way in WAYS}
    doctors = []
    for turn in range(rounds):
        for way in WAYS:
            progress(f"round {turn + 1}/{rounds}: {way}")
            found[way].append(one(way))
        if turn < DOCTORS:
            doctors.append(doctor())
    progress("")
    return {
        "ways": {
            way: {
                "ms": [took for took, _, _ in trials],
                "fewest_threads": min(threads for _, threads, _ in trials),
                "fewest_stacks": min(stacks for _, _, stacks in trials),
            }
            for way, trials in found.items()
        },
        "doctor_seconds": [clock for clock, _ in doctors],
        "doctor_cpu_seconds": [cpu for _, cpu in doctors],
    }


def table(ways: dict[str, Any]) -> output.Table:
    rows = [
        (way, f"{statistics.median(one['ms']):.1f}", f"{max(one['ms']):.1f}", str(one["fewest_threads"]),
         str(one["fewest_stacks"]) if way != "untraced" else "-", str(len(one["ms"])))
        for way, one in ways.items()
    ]  # fmt: skip
    return output.Table(("a rank, ms from SIGTERM to its end", "median", "most", "threads", "stacks", "rounds"), rows)


def doctor_table(found: dict[str, Any]) -> output.Table:
    rows = [
        (name, f"{statistics.median(values):.2f}", f"{max(values):.2f}", str(len(values)))
        for name, values in (("by the clock", found["doctor_seconds"]), ("CPU time", found["doctor_cpu_seconds"]))
    ]
    return output.Table(("`pytracer doctor`, s", "median", "most", "rounds"), rows)


def main() -> int:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="of each way (default 20)")
    parser.add_argument("--quick", action="store_true", help="three rounds")
    output.add_arguments(parser)
    given = parser.parse_args()
    about = machine()
    found = document(3 if given.quick else max(given.rounds, 1))
    output.deliver("request_to_end", given, about, found, [table(found["ways"]), doctor_table(found)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
