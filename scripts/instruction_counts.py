"""Instructions of each hook's hot path, counted by callgrind, and what the paths call. Needs valgrind and its headers.

    python scripts/instruction_counts.py                table
    python scripts/instruction_counts.py --check        compares with the page; 1 when a count increased
    python scripts/instruction_counts.py --write        writes the table into docs/measurements/cost.md

Counts do not depend on other load, so that a regression shows that is hidden in the noise of times. They depend on the
compiler, CPython and torch, which the table names: elsewhere, write a table first and compare with that.

Each workload runs in its own process, warm; only its loop is counted. The cost of torch's own function (the
allocator, the collective itself) is subtracted: the count is what the hook adds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "measurements" / "cost.md"
BEGIN, END = "<!-- instructions: begin (scripts/instruction_counts.py --write) -->", "<!-- instructions: end -->"
TOLERANCE, SLACK = 0.05, 5
ITERATIONS, STEPS = 1000, 10
TRAINING = ("MLP step", "DDP step")  # of benchmarks/; longer ones take minutes under valgrind
# A hot path that reaches one of these allocates, locks, or enters the kernel.
FORBIDDEN = re.compile(
    r"^('\d+)?(malloc|calloc|realloc|free|cfree|posix_memalign|aligned_alloc|_int_malloc|_int_free|"
    r"operator (new|delete).*|pthread_mutex_(un)?lock.*|__lll_lock.*|"
    r"syscall|write|read|open|mmap|munmap|futex.*|nanosleep|clock_nanosleep)(@.*)?$"
)


@dataclass(frozen=True)
class Hook:
    """One row: `function` with all that it calls, less calls from it into `torchs_own`, per call."""

    title: str
    workload: str
    level: str
    function: str
    torchs_own: str = r"$^"
    may: str = ""  # what it may call, and why


HOOKS = (
    Hook("storage allocated, small", "small", "light", r"^pytracer::hooks::.*\ballocate\(", r"c10::"),
    Hook("storage freed, small", "small", "light", r"^pytracer::hooks::.*\brelease\(", r"c10::"),
    Hook("storage allocated, 128 KiB and more", "large", "light", r"^pytracer::hooks::.*\ballocate\(", r"c10::"),
    Hook("storage freed, 128 KiB and more", "large", "light", r"^pytracer::hooks::.*\brelease\(", r"c10::"),
    Hook("autograd node begins", "backward", "default", r"^pytracer::hooks::.*\bnode_runs\("),
    Hook("operator begins (ops)", "small", "ops", r"^pytracer::hooks::.*\bon_operator\("),
    Hook(
        "collective called", "collective", "light", r"^pytracer::hooks::.*\bdescribe\(",
        may="names of groups and their members are strings of torch's",
    ),
    Hook("collective starts", "collective", "light", r"^pytracer::hooks::.*\bon_start\(", may="one block for its end"),
    Hook("collective ends", "collective", "light", r"^pytracer::hooks::.*\bon_end\("),
)  # fmt: skip


def prepare(workload: str) -> Callable[[int], None]:
    """The loop of a workload."""
    import torch

    torch.set_num_threads(1)
    empty = torch.empty
    if workload in ("small", "large"):
        count = 64 if workload == "small" else 65536

        def storages(n: int) -> None:
            for _ in range(n):
                empty(count)

        return storages
    if workload == "tiny":
        a, b = torch.ones(4), torch.ones(4)

        def tiny(n: int) -> None:
            for _ in range(n):
                a.add(b).mul(b)

        return tiny
    if workload == "backward":
        weight, x = torch.ones(4, requires_grad=True), torch.ones(4)

        def backward(n: int) -> None:
            for _ in range(n):
                (weight * x).sum().backward()

        return backward
    if workload == "step":
        optimizer = torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1)

        def steps(n: int) -> None:
            for _ in range(n):
                optimizer.step()

        return steps
    sys.path.insert(0, str(ROOT / "benchmarks"))
    if workload in TRAINING:
        from toggled import function_of

        return function_of(workload)
    import torch.distributed as dist
    from support.training import join_alone

    join_alone()
    tensor = torch.ones(4)

    def collectives(n: int) -> None:
        for _ in range(n):
            dist.all_reduce(tensor)

    return collectives


def measured(workload: str, level: str, marks: str) -> None:
    """Runs in the counted process."""
    with tempfile.TemporaryDirectory() as directory:
        if level:
            import pytracer
            from pytracer.record.torch import names

            # Updates of all names are limited to a share of the time: under valgrind ten steps have one, or none.
            names.SHARE *= 1_000_000
            chosen: object = level
            pytracer.enable(directory, level=chosen)  # type: ignore[arg-type]
        run = prepare(workload)
        warm, counted = (STEPS, STEPS) if workload in TRAINING else (300, ITERATIONS)
        run(warm)
        library = ctypes.CDLL(marks)
        library.begin()
        run(counted)
        library.end()
        os._exit(0)  # the exit is not measured, and takes long under valgrind


MARKS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void end(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""


@dataclass
class Profile:
    """Callgrind's output: edges of the call graph with calls and inclusive instructions."""

    edges: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    total: int = 0

    def inclusive(self, pattern: str) -> tuple[int, int]:
        """Calls and instructions of the functions that match, with what they call."""
        into = [
            cost
            for (caller, callee), cost in self.edges.items()
            if re.search(pattern, callee) and not re.search(pattern, caller)
        ]
        return sum(cost[0] for cost in into), sum(cost[1] for cost in into)

    def spent_in(self, pattern: str, callee_pattern: str) -> int:
        """Instructions that the functions that match spend in certain callees."""
        return sum(
            cost[1]
            for (caller, callee), cost in self.edges.items()
            if re.search(pattern, caller) and re.search(callee_pattern, callee)
        )

    def reached(self, pattern: str, not_into: str) -> set[str]:
        """Functions called by those that match, on any path: contexts are not distinguished (conservative)."""
        todo = {callee for _, callee in self.edges if re.search(pattern, callee)}
        roots, seen = set(todo), set(todo)
        while todo:
            caller = todo.pop()
            for (one, callee), _ in self.edges.items():
                if one == caller and callee not in seen and not (caller in roots and re.search(not_into, callee)):
                    seen.add(callee)
                    todo.add(callee)
        return seen - roots


def read_profile(path: Path) -> Profile:
    """callgrind's output format, uncompressed (its manual, "Callgrind Format Specification")."""
    profile = Profile()
    caller = callee = ""
    calls = 0
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("fn="):
            caller = line[3:]
        elif line.startswith("cfn="):
            callee = line[4:]
        elif line.startswith("calls="):
            calls = int(line[6:].split()[0])
        elif calls and line[:1] in "0123456789+-*":
            cost = profile.edges.setdefault((caller, callee), [0, 0])
            cost[0] += calls
            cost[1] += int(line.split()[-1])
            calls = 0
        elif line.startswith("totals:"):
            profile.total = int(line.split()[1])
    return profile


def profile_of(workload: str, level: str, directory: Path) -> Profile:
    """Runs one workload under callgrind."""
    marks = directory / "marks.so"
    if not marks.exists():
        (directory / "marks.c").write_text(MARKS)
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", marks, directory / "marks.c"], check=True)
    output = directory / f"{workload}-{level}.out"
    subprocess.run(
        [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", "--compress-strings=no", "--compress-pos=no",
            f"--callgrind-out-file={output}", sys.executable, __file__, "--measured", workload, level, str(marks),
        ],
        check=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    return read_profile(output)


def count(only: str | None) -> tuple[dict[str, int], list[str]]:
    """Row -> instructions per call; and paths that reach a forbidden function."""
    found, complaints = {}, []
    profiles: dict[tuple[str, str], Profile] = {}
    with tempfile.TemporaryDirectory(prefix="pytracer-instructions-") as directory:
        for hook in HOOKS:
            if only and only not in hook.title:
                continue
            key = (hook.workload, hook.level)
            if key not in profiles:
                print(f"counting: {hook.workload}, {hook.level}", file=sys.stderr)
                profiles[key] = profile_of(*key, Path(directory))
            profile = profiles[key]
            calls, cost = profile.inclusive(hook.function)
            if calls == 0:
                complaints.append(f"{hook.title}: no function matches {hook.function}")
                continue
            found[hook.title] = round((cost - profile.spent_in(hook.function, hook.torchs_own)) / calls)
            bad = sorted(name for name in profile.reached(hook.function, hook.torchs_own) if FORBIDDEN.match(name))
            if bad and not hook.may:
                complaints.append(f"{hook.title}: reaches {', '.join(bad)}")
        if not only:
            for title, workload in (("tiny-op iteration", "tiny"), *((name, name) for name in TRAINING)):
                print(f"counting: {title}", file=sys.stderr)
                totals = {
                    level: profile_of(workload, level, Path(directory)).total for level in ("", "light", "default")
                }
                for level in ("light", "default"):
                    found[f"{title}, {level}, per mille of untraced"] = round(1000 * (totals[level] / totals[""] - 1))
            # In total: Python calls the core through libffi, where callgrind loses the function.
            steps = {level: profile_of("step", level, Path(directory)).total for level in ("", "light")}
            found["optimizer step, Python included"] = round((steps["light"] - steps[""]) / ITERATIONS)
    return found, complaints


def table(found: dict[str, int]) -> str:
    """The table, and the versions that it applies to."""
    import torch

    compiler = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    lines = [BEGIN, "", "| per call | instructions |", "|---|---|"]
    lines += [f"| {title} | {value} |" for title, value in found.items()]
    about = f"CPython {platform.python_version()}, torch {torch.__version__}, gcc {compiler}, {platform.machine()}"
    return "\n".join([*lines, "", f"Counted with {about}.", "", END])


def known() -> dict[str, int]:
    """The table in docs/measurements/cost.md."""
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return {title: int(value) for title, value in re.findall(r"^\| ([^|]+) \| (-?\d+) \|$", text, re.MULTILINE)}


def main() -> int:
    """Count, and print, compare or write; returns the exit code."""
    parser = argparse.ArgumentParser(description="Instructions per call of each hook.")
    parser.add_argument("--check", action="store_true", help="compare with docs/measurements/cost.md")
    parser.add_argument("--write", action="store_true", help="write docs/measurements/cost.md")
    parser.add_argument("--only", help="rows whose title contains this")
    parser.add_argument("--measured", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measured:
        measured(*given.measured)
    found, complaints = count(given.only)
    if given.write:
        head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(head + table(found) + rest.partition(END)[2], encoding="utf-8")
    old = known() if given.check else {}
    for title, value in found.items():
        before = old.get(title)
        if before is not None and value > before * (1 + TOLERANCE) + SLACK:
            complaints.append(f"{title}: {value} instructions, {before} in docs/measurements/cost.md")
        print(f"{title:<55}{value:>7}" + (f"{before:>9} before" if before is not None else ""))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
