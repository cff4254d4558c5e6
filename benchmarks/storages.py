"""What does a storage cost? Allocation and free of one, by variant, on 1, 2 and 4 threads.

    python benchmarks/storages.py                     table
    python benchmarks/storages.py --json              JSON on stdout
    python benchmarks/storages.py --quick             fewer rounds
    python benchmarks/storages.py --nbytes 65536      storages of another size

Each configuration is a process of its own; they take turns, in changing order, with the same loop in C++ through the
CPU allocator of torch. Numbers are processor time per pair of allocation and free, so that more threads than cores do
not count twice. "untraced again" is a second plain process: its ratio is the noise. memray and an AddressSanitizer are
left out where they are not installed. memray's system allocator hook sees every malloc; AddressSanitizer's replaces the
allocator, with stacks of both ends and a quarantine: only its allocator is measured, not its checks of each access.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support import output
from support.measuring import half, machine, progress, spread

PLAIN = "untraced"
THREADS = (1, 2, 4)
SOURCE = Path(__file__).resolve().parent / "support" / "storage_loop.cpp"


@dataclass(frozen=True)
class Setting:
    """How one configuration's process is started.

    `python_line`: allocate under a line of Python, else on threads without Python. `prelude` runs in the process first.
    """

    environment: dict[str, str] = field(default_factory=dict)
    python_line: bool = True
    prelude: str = ""


def plain(_: Path) -> Setting | None:
    """Untraced."""
    return Setting()


def plain_without_python(_: Path) -> Setting | None:
    """The same loop on threads without Python: the baseline of the row without the line."""
    return Setting(python_line=False)


def traced(directory: Path, guard: str | None = None) -> Setting | None:
    """As under `pytracer run`: the table of storages, and the line of Python at both ends."""
    from pytracer.launcher import run_directory

    (directory / run_directory.BOXES).mkdir(parents=True, exist_ok=True, mode=0o700)
    return Setting(run_directory.environment(run_directory.Run(directory, directory), "default", {}, guard=guard))


def traced_without_line(directory: Path) -> Setting | None:
    """The table of storages alone."""
    setting = traced(directory)
    return Setting(setting.environment, python_line=False) if setting else None


def memray(directory: Path) -> Setting | None:
    """memray's Tracker, which writes every allocation into a file."""
    if importlib.util.find_spec("memray") is None:
        return None
    target = repr(str(directory) + ".memray")
    return Setting(prelude=f"import memray; memray.Tracker({target}).__enter__()")


def address_sanitizer(_: Path) -> Setting | None:
    """AddressSanitizer's allocator in place of malloc."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        return None
    name = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(name):
        return None
    return Setting({"LD_PRELOAD": name, "ASAN_OPTIONS": "detect_leaks=0"})


# Name -> how to start it, and which row it is compared with.
CONFIGURATIONS: dict[str, tuple[Callable[[Path], Setting | None], str]] = {
    PLAIN: (plain, PLAIN),
    "untraced again": (plain, PLAIN),
    "untraced, no Python": (plain_without_python, "untraced, no Python"),
    "table": (traced_without_line, "untraced, no Python"),
    "table and line": (traced, PLAIN),
    "guard sample:1000": (partial(traced, guard="sample:1000"), PLAIN),
    "guard all": (partial(traced, guard="all"), PLAIN),
    "memray": (memray, PLAIN),
    "AddressSanitizer": (address_sanitizer, PLAIN),
}


def compile_loop(directory: Path) -> Path:
    """storage_loop.cpp against the installed torch."""
    from torch.utils import cpp_extension

    library = directory / "libstorage_loop.so"
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-w", "-DNDEBUG", "-fPIC", "-shared", str(SOURCE)]
    command += [f"-I{path}" for path in cpp_extension.include_paths()]
    command += [f"-L{path}" for path in cpp_extension.library_paths()] + ["-lc10", "-lpthread", "-o", str(library)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("storages: the loop did not compile: see above; a C++ compiler is needed")
    return library


def worker(library: str, nbytes: int, python_line: bool, prelude: str) -> None:
    """Serves one configuration: reads `THREADS PAIRS`, answers with ns per pair."""
    import torch

    torch.empty(1)
    loop = ctypes.CDLL(library)
    for name in ("pairs_here", "pairs_on_threads"):
        getattr(loop, name).restype = ctypes.c_double
    exec(prelude)  # noqa: S102  # written above

    def below_python(threads: int, count: int) -> float:
        results: list[float] = []
        run = [
            threading.Thread(
                target=lambda: results.append(loop.pairs_here(ctypes.c_uint64(count), ctypes.c_size_t(nbytes)))
            )
            for _ in range(threads)
        ]
        for thread in run:
            thread.start()
        for thread in run:
            thread.join()
        return sum(results) / threads

    print("ready", flush=True)
    for line in sys.stdin:
        threads, count = map(int, line.split())
        if python_line:
            answer = below_python(threads, count)
        else:
            answer = loop.pairs_on_threads(ctypes.c_uint32(threads), ctypes.c_uint64(count), ctypes.c_size_t(nbytes))
        print(answer, flush=True)


class Worker:
    """A process that measures one configuration."""

    def __init__(self, setting: Setting, library: Path, nbytes: int) -> None:
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("PYTRACER_", "LD_PRELOAD", "ASAN_"))}
        words = [str(library), str(nbytes), str(int(setting.python_line)), setting.prelude]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--worker", *words],
            env=kept | setting.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def ready(self) -> bool:
        """False when the process could not start in this configuration."""
        return self._answer() == "ready"

    def measure(self, threads: int, pairs: int) -> float:
        """ns of processor time per pair."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{threads} {pairs}\n")
        return float(self._answer() or "nan")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


def measure(nbytes: int, rounds: int, pairs: int) -> tuple[dict[tuple[str, int], list[float]], list[str]]:
    """(configuration, threads) -> ns per pair, one value per round; and which configurations could not run."""
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as place:
        library = compile_loop(Path(place))
        workers: dict[str, Worker] = {}
        for number, (name, (make, _)) in enumerate(CONFIGURATIONS.items()):
            progress(f"starting {name}")
            setting = make(Path(place, str(number)))
            one = Worker(setting, library, nbytes) if setting else None
            if one is not None and one.ready():
                workers[name] = one
            else:
                missing.append(name)
        times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in workers for n in THREADS}
        for turn in range(rounds + 1):
            progress(f"round {turn}/{rounds}")
            for name in random.sample(list(workers), len(workers)):
                for threads in THREADS:
                    value = workers[name].measure(threads, pairs)
                    if turn > 0:  # the first round warms up
                        times[name, threads].append(value)
        for one in workers.values():
            one.close()
    progress("")
    return times, missing


def rows_of(times: dict[tuple[str, int], list[float]]) -> list[dict[str, Any]]:
    """Ratios to the row of comparison, round by round."""
    rows: list[dict[str, Any]] = []
    for (name, threads), values in times.items():
        base = times[CONFIGURATIONS[name][1], threads]
        ratios = [value / plain_ns for value, plain_ns in zip(values, base, strict=True)]
        extra = [value - plain_ns for value, plain_ns in zip(values, base, strict=True)]
        rows.append({"configuration": name, "threads": threads, "against": CONFIGURATIONS[name][1],
                     "ratio": spread(ratios), "extra_ns": spread(extra), "ns": spread(values),
                     "rounds": len(values)})  # fmt: skip
    return rows


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        library, nbytes, line, prelude = sys.argv[2:6]
        worker(library, int(nbytes), line == "1", prelude)
        return 0
    parser = argparse.ArgumentParser(description="ns per allocation and free of one storage, with spread.")
    parser.add_argument("--nbytes", type=int, default=256, help="size of the storages (default 256)")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--pairs", type=int, default=20_000, help="allocations and frees of one thread in a round")
    parser.add_argument("--quick", action="store_true", help="5 rounds")
    output.add_arguments(parser)
    given = parser.parse_args()
    times, missing = measure(given.nbytes, 5 if given.quick else given.rounds, given.pairs)
    rows = rows_of(times)
    cells = [
        (
            row["configuration"],
            str(row["threads"]),
            f"{row['ratio']['median']:.2f}x",
            half(row["ratio"]),
            f"{row['extra_ns']['median']:.1f} ns",
            f"{row['ns']['median']:.1f} ns",
        )
        for row in rows
    ]
    table = output.Table(("", "threads", "ratio", "middle half", "extra", "per pair"), cells)
    notes = [f"{given.nbytes} bytes, {rows[0]['rounds']} rounds", *(f"Not measured: {name}" for name in missing)]
    document = {"nbytes": given.nbytes, "missing": missing, "rows": rows}
    output.deliver("storages", given, machine(), document, [table], notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
