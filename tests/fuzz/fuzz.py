"""Feeds damaged and hostile inputs to the reader, each in a bounded process: `make fuzz ARGS='--minutes 5'`.

    python tests/fuzz/fuzz.py --minutes 5                 all targets
    python tests/fuzz/fuzz.py --target core --count 10000
    python tests/fuzz/fuzz.py --guided --minutes 60       guided by coverage, with a corpus in build/fuzz
    python tests/fuzz/fuzz.py --replay report:123456      one input again, with its traceback
    python tests/fuzz/fuzz.py --replay report:FILE        one of tests/fuzz/corpus, or of build/fuzz

An input follows from its target and its number alone, except for those of --guided (tests/fuzz/guided.py). When a
worker raises, takes more than 5 s of CPU or 512 MiB, or dies, its input is kept in build/fuzz, a line with the command
to replay it is printed, and the exit status is 1. Inputs of bugs go into tests/fuzz/corpus as TARGET-WHAT.bin.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.fuzz.targets import TARGETS, input_of, run_one  # noqa: E402

GUIDED = Path(__file__).with_name("guided.py")
CPU_SECONDS = 5
MEMORY_BYTES = 512 << 20
_STATE = struct.Struct("<QQQ")  # next number, done, failures
_BATCH = 50
# A report takes fifteen times as long as a name.
_WEIGHTS = {"box": 6, "report": 2, "run": 2, "flight": 2, "core": 8, "image": 4, "text": 8}


def bounded() -> None:
    """Limits this process to 512 MiB more, and disables core dumps."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def more_time() -> None:
    """After 5 s more of CPU time the kernel ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + CPU_SECONDS + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


def work(shared: mmap.mmap, order: list[str], first: int, count: int, aside: Path) -> None:
    """The worker: inputs from `first` on, cycling through the targets; its position is in `shared`."""
    bounded()
    _, done, failures = _STATE.unpack_from(shared)
    with tempfile.TemporaryDirectory(prefix="pytracer-fuzz-", dir=in_memory()) as name:
        for number in range(first, first + count):
            _STATE.pack_into(shared, 0, number, done, failures)
            target = order[number % len(order)]
            more_time()
            try:
                content = input_of(target, number)
            except MemoryError:
                continue  # trees of JSON double in places: what does not fit into a worker is no input
            try:
                run_one(target, content, Path(name))
            except BaseException as error:
                failures += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__}: {error}"[:160]
                keep(aside, target, number, content, f"{what} at {os.path.basename(where.filename)}:{where.lineno}")
            done += 1
        _STATE.pack_into(shared, 0, first + count, done, failures)


def keep(aside: Path, target: str, which: int | str, content: bytes, what: str) -> None:
    """Keeps an input, by its number or by another name, and prints one line."""
    aside.mkdir(parents=True, exist_ok=True)
    path = aside / f"{target}-{which}.bin"
    path.write_bytes(content)
    again = which if isinstance(which, int) else path
    print(f"{what}; replay: python tests/fuzz/fuzz.py --replay {target}:{again}", flush=True)


def fuzz(order: list[str], first: int, until: float, most: int, aside: Path) -> tuple[int, int]:
    """Starts worker after worker; returns how many inputs there were, and how many failed."""
    shared = mmap.mmap(-1, _STATE.size)
    number, said = first, time.monotonic()
    _STATE.pack_into(shared, 0, first, 0, 0)
    while time.monotonic() < until and (done := _STATE.unpack_from(shared)[1]) < most:
        child = os.fork()
        if child == 0:
            try:
                work(shared, order, number, min(_BATCH * len(order), most - done), aside)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            raise SystemExit("the fuzzer itself failed: see above")
        number, done, failures = _STATE.unpack_from(shared)
        if os.WIFSIGNALED(status):
            why = os.WTERMSIG(status)
            what = f"more than {CPU_SECONDS} s" if why == signal.SIGXCPU else f"died of signal {why}"
            target = order[number % len(order)]
            keep(aside, target, number, input_of(target, number), what)
            number += 1
            _STATE.pack_into(shared, 0, number, done + 1, failures + 1)
        if time.monotonic() - said > 60:
            said = time.monotonic()
            print(f"{done} inputs, {failures} failures", file=sys.stderr, flush=True)
    _, done, failures = _STATE.unpack_from(shared)
    return done, failures


def guided(targets: list[str], seconds: float, aside: Path) -> int:
    """libFuzzer for each target in turn, again when an input ended it; returns how many failures there were."""
    failures = _kept(aside)
    for target in targets:
        until = time.monotonic() + seconds / len(targets)
        while (left := int(until - time.monotonic())) > 0:
            print(f"{target}, {left} s", file=sys.stderr, flush=True)
            before = _kept(aside)
            with tempfile.TemporaryDirectory(prefix="pytracer-fuzz-", dir=in_memory()) as folder:
                ended = subprocess.run([sys.executable, str(GUIDED), target, str(left), folder], check=False)
            ending = [path for path in _kept(aside) - before if path.suffix != ".bin"]
            for path in ending:
                print(f"ended libFuzzer; replay: python tests/fuzz/fuzz.py --replay {target}:{path}", flush=True)
            if ended.returncode != 0 and not ending:
                raise SystemExit("the fuzzer itself failed: see above")
    return len(_kept(aside) - failures)


def _kept(aside: Path) -> set[Path]:
    return {path for path in aside.glob("*-*") if path.is_file()}


def replay(which: str) -> None:
    """Runs one input in this process, with the traceback of what it raises."""
    target, _, rest = which.partition(":")
    content = input_of(target, int(rest)) if rest.isdigit() else Path(rest).read_bytes()
    more_time()
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="pytracer-fuzz-", dir=in_memory()) as name:
        run_one(target, content, Path(name))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{which}: {len(content)} bytes, {time.process_time() - began:.2f} s, {peak} MiB at most")


def in_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--count", type=int, default=1 << 62, help="end after so many inputs (not with --guided)")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", help="only this; may be repeated")
    parser.add_argument("--first", type=int, help="number of the first input; random when left out")
    parser.add_argument("--guided", action="store_true", help="let coverage choose; needs atheris (pip)")
    parser.add_argument("--replay", metavar="TARGET:WHICH", action="append", help="a number or a file; may be repeated")
    given = parser.parse_args()
    if given.replay:
        bounded()
        for which in given.replay:
            replay(which)
        return 0
    if given.guided:
        failures = guided(given.target or sorted(TARGETS), 60 * given.minutes, ROOT / "build" / "fuzz")
        print(f"{failures} failures")
        return 1 if failures else 0
    order = [name for name in (given.target or sorted(TARGETS)) for _ in range(_WEIGHTS[name])]
    first = random.SystemRandom().randrange(1 << 48) if given.first is None else given.first
    done, failures = fuzz(order, first, time.monotonic() + 60 * given.minutes, given.count, ROOT / "build" / "fuzz")
    print(f"{done} inputs from {first} on, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
