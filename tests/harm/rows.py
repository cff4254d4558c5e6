"""The rows of the harm table, as data: programs that a tracer could disturb, and how each ends untraced.

A cell is a row, a way to trace and a power: what the processes may do. Everything else about a cell is compared with
the same program untraced.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Way = Literal["environment", "launcher", "enable"]
Power = Literal["plain", "no-ptrace", "unprivileged", "filtered", "first-process"]

WAYS: tuple[Way, ...] = ("environment", "launcher", "enable")
POWERS: tuple[Power, ...] = ("plain", "no-ptrace", "unprivileged", "filtered", "first-process")
SEGV, ABRT, BUS, FPE, ILL, TRAP, SYS, XCPU, KILL = 139, 134, 135, 136, 132, 133, 159, 152, 137
MIB = 1 << 20
# What a short-lived process may cost beyond 1.1 times its own time: twice what was measured on a quiet
# machine (0.04 to 0.08 ms, and 0.2 to 0.3 ms), so that a row fails when the cost doubles, and not because of
# load on the machine.
FORK_US, EXEC_US = 160, 600


@dataclass(frozen=True)
class Row:
    """One program.

    `command` is what is run; its first word is a program of `programs/`, or a path. `status` is the untraced one, as a
    shell has it. `disk_bytes` bounds what one run leaves in its run directory. Where `cost_us` is given, CPU time is
    compared, too: it may be that much more than 1.1 times the untraced one and 10 ms. `slow` rows are left to
    `make test-harm`.
    """

    command: tuple[str, ...]
    status: int = 0
    powers: tuple[Power, ...] = ("plain", "unprivileged", "filtered")
    ways: tuple[Way, ...] = ("environment", "launcher")
    disk_bytes: int = 16 * MIB
    cost_us: int | None = None
    slow: bool = False
    full_shm: bool = False
    stdin: str = ""
    seconds: int = 30

    def __str__(self) -> str:
        return " ".join(self.command).replace("{programs}/", "").replace("{python} ", "")

    @property
    def group(self) -> str:
        """The program that the row belongs to."""
        words = [word for word in self.command if word != "{python}"]
        return words[0].rpartition("/")[2]


@dataclass(frozen=True)
class Cell:
    """One row, traced in one way, with one power."""

    row: Row
    way: Way
    power: Power

    def __str__(self) -> str:
        words = "".join(c if c.isalnum() or c == "-" else "_" for c in str(self.row))
        return f"{words}-{self.way}-{self.power}"


ALL: tuple[Power, ...] = ("plain", "no-ptrace", "unprivileged", "filtered")
WAITS = (
    "pause", "sigsuspend", "sleep", "nanosleep", "clock_nanosleep", "poll", "ppoll", "select", "pselect",
    "epoll_wait", "epoll_pwait", "read-pipe", "write-pipe", "read-eventfd", "read-timerfd", "read-signalfd",
    "read-inotify", "open-fifo", "accept", "recv", "recvmsg", "recv-timeout", "sem_wait", "sem_timedwait",
    "cond_wait", "cond_timedwait", "mutex", "rwlock", "barrier", "join", "futex", "futex-timeout", "sigwait",
    "sigwaitinfo", "sigtimedwait", "msgrcv", "semop", "semtimedop", "mq_receive", "waitpid", "waitid", "flock",
    "io_getevents", "aio_suspend",
)  # fmt: skip
PYTHON_WAITS = (
    "pause", "sleep", "event", "sigtimedwait", "select", "selector", "poll", "queue", "lock", "join", "read",
    "accept", "child",
)  # fmt: skip
PYTHON_WAYS: tuple[Way, ...] = ("environment", "launcher", "enable")


def _c(words: str, status: int = 0, **more: object) -> Row:
    return Row(tuple(words.split()), status, **more)  # type: ignore[arg-type]


def _py(words: str, status: int = 0, **more: object) -> Row:
    first, *rest = words.split()
    return Row(("{python}", "{programs}/" + first, *rest), status, **({"ways": PYTHON_WAYS} | more))  # type: ignore[arg-type]


def _sh(script: str, status: int = 0, **more: object) -> Row:
    return Row(("/bin/bash", "-c", script), status, **more)  # type: ignore[arg-type]


def waits() -> Iterator[Row]:
    """One thread crashes, the others wait."""
    for kind in WAITS:
        yield _c(f"waits {kind}", SEGV, powers=ALL)
    for kind in ("pause", "nanosleep", "poll", "sigsuspend", "cond_timedwait"):
        yield _c(f"waits {kind} 2", SEGV, powers=ALL)
        yield _c(f"waits {kind} 40", SEGV, powers=ALL)
        yield _c(f"waits {kind} 1000", SEGV, slow=True)
        yield _c(f"waits {kind} 3 null not-dumpable", SEGV, powers=ALL)
    for death, status in (
        ("abort", ABRT),
        ("ud2", ILL),
        ("int3", TRAP),
        ("divide", FPE),
        ("stack", SEGV),
        ("sent", SEGV),
    ):
        yield _c(f"waits pause 3 {death}", status, powers=ALL)
        yield _c(f"waits poll 3 {death}", status, powers=ALL)
    for kind in PYTHON_WAITS:
        yield _py(f"waits.py {kind}", SEGV, powers=ALL)
        yield _py(f"waits.py {kind} abort", ABRT, powers=("plain", "no-ptrace"))


def crashes() -> Iterator[Row]:
    """Deaths of every kind."""
    for threads in (2, 8, 50):
        yield _c(f"together {threads} null", SEGV, powers=ALL)
    yield _c("together 20 abort", ABRT, powers=ALL)
    yield _c("together 20 ud2", ILL)
    yield _c("together 4 stack", SEGV)
    yield _c("together 500 null", SEGV, slow=True)
    for death, status in (
        ("null", SEGV),
        ("int3", TRAP),
        ("ud2", ILL),
        ("abort", SEGV),
        ("raise", 42),
        ("term", 42),
        ("child", 42),
    ):
        yield _c(f"first_process {death}", status, powers=("first-process",), ways=("environment",))
    yield _c(
        "storm 20 nested", powers=("plain", "first-process")
    )  # under the launcher it is the launcher that is first
    yield _c("sent children", powers=("plain", "first-process"))
    for name, status in (
        ("SEGV", SEGV), ("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131), ("KILL", KILL), ("PIPE", 141),
        ("ABRT", ABRT), ("BUS", BUS), ("FPE", FPE), ("ILL", ILL), ("TRAP", TRAP), ("XCPU", XCPU), ("SYS", SYS),
        ("ALRM", 142), ("USR1", 138),
    ):  # fmt: skip
        yield _c(f"sent kill {name}", status)
    for death, status in (("null", SEGV), ("abort", ABRT), ("ud2", ILL), ("int3", TRAP)):
        yield _c(f"debugged {death}", 0)
        yield _c(f"set_user_id {death}", status, powers=("unprivileged",))
    yield _c("set_user_id exit", 3, powers=("unprivileged",))
    yield _c("debugged int3 swallow", 0)
    yield _c("debugged ud2 handled", 0)


def handlers() -> Iterator[Row]:
    """Signals and handlers."""
    for threads, rounds in ((2, 50), (8, 20)):
        yield _c(f"safepoint {threads} {rounds}", powers=ALL)
    for mode in (
        "barrier",
        "nodefer",
        "fpe",
        "trap",
        "slow",
        "bus",
        "skip",
        "step",
        "breakpoint",
        "registers",
        "vectors",
        "mask",
        "alarm",
    ):
        yield _c(f"repairs {mode}")
    for how in ("same", "other", "jump", "nodefer"):
        yield _c(f"safefetch {how}", 3)
        yield _c(f"safefetch {how} onstack", 3)
    for how in ("plain", "saved"):
        for threads in (0, 4):
            yield _c(f"leaves_handler {how} {threads}")
    for mode in ("normal", "own", "sent", "thread", "deep", "asks", "disarm", "overflow", "fork", "raw"):
        yield _c(f"handler_stack {mode}")
    yield _c("coroutines sigaltstack")
    yield _c("coroutines context")
    yield _c("coroutines crash", SEGV)
    for mode, status in (
        ("reset", SEGV), ("reraise", SEGV), ("raise-default", SEGV), ("chain", 42), ("leaves", 42), ("exits", 43),
        ("ignored-fault", SEGV), ("blocked-fault", SEGV), ("blocked-raw", SEGV), ("query", 0), ("masks", 0),
        ("nodefer", 0), ("restart", 0), ("abort-returns", ABRT), ("abort-jumps", 0), ("defaults", 0), ("legacy", 0),
    ):  # fmt: skip
        yield _c(f"actions {mode}", status, disk_bytes=(256 if mode == "defaults" else 16) * MIB)
    for mode in ("info", "queue", "pending", "sigwait", "thread"):
        yield _c(f"sent {mode}")
    for mode in ("errno", "handler", "vfork", "group", "itself", "stop", "threads"):
        yield _c(f"kills {mode}")
    for mode, status in (("ignored", 0), ("blocked", 0), ("handled", 0), ("raised", SEGV)):
        yield _c(f"over_exec {mode}", status)
    for mode in ("missing", "shared", "signal"):
        yield _c(f"userfault {mode}", powers=("plain",))


def processes() -> Iterator[Row]:
    """Children, threads, users, descriptors."""
    for how in ("fork", "kill", "clone", "threads"):
        yield _c(f"storm 200 {how}", disk_bytes=10 * MIB, cost_us=200 * FORK_US, powers=("plain",))
    yield _c("storm 200 nested", disk_bytes=10 * MIB, cost_us=400 * FORK_US, powers=("plain",))
    for how in ("exec", "vfork", "spawn"):
        yield _c(f"storm 200 {how}", disk_bytes=10 * MIB, cost_us=200 * EXEC_US, powers=("plain",))
    yield _c("storm 30 crash", disk_bytes=30 * 4 * MIB, powers=("plain",))
    yield _c(
        "storm 10000 fork", disk_bytes=20 * MIB, cost_us=10000 * FORK_US, slow=True, powers=("plain",), seconds=120
    )
    yield _c("storm 2000 kill", disk_bytes=10 * MIB, cost_us=2000 * FORK_US, slow=True, powers=("plain",), seconds=120)
    yield _sh(
        "for i in {1..500}; do /bin/true; done; echo done",
        disk_bytes=10 * MIB,
        cost_us=500 * EXEC_US,
        powers=("plain",),
    )
    yield _sh(
        "for i in {1..300}; do x=$(echo $i); done; echo $x",
        disk_bytes=10 * MIB,
        cost_us=300 * FORK_US,
        powers=("plain",),
    )
    yield _sh("seq 1000 | sort -rn | head -3 | tr '\\n' ' '", powers=ALL)
    yield _sh("exec /bin/true", cost_us=2 * EXEC_US, powers=("plain",))
    yield _sh("trap '' SEGV ABRT; sh -c 'kill -SEGV $$; kill -ABRT $$; echo goes on'")
    yield _sh("trap 'echo caught' TERM; kill -TERM $$; echo $?")
    yield _sh("env -i /bin/echo without environment; (exit 7)", 7)
    yield _sh("(kill -ABRT $BASHPID) 2>/dev/null; echo $?; exec no-such-command 2>/dev/null", 127)
    yield _c("waited", powers=ALL)
    for mode, status in (("main-leaves", 6), ("main-crashes", SEGV), ("cancel", 0), ("cancel-async", 0), ("keys", 0),
                         ("quick", 8), ("exit-race", 4),
                         ("many", 0), ("detached", 0)):  # fmt: skip
        yield _c(f"threads {mode}", status)
    for mode, status in (("null", SEGV), ("fork", 3), ("exit", 3), ("exec", 0)):
        yield _c(f"drops_privileges {mode}", status, powers=("plain", "no-ptrace", "filtered"))
    for mode in ("inherited", "single", "timers", "names"):
        yield _c(f"surroundings {mode}", powers=ALL)
    yield Row(("surroundings", "stdin"), stdin="one\ntwo\n")
    for how in ("truncate", "remove"):
        yield _c(f"own_files {how}", 3)
        yield _c(f"own_files {how} null", SEGV)
    yield _c("own_files unmap null", SEGV)
    for mode in ("errors", "handler", "vfork", "threads"):
        yield _c(f"unmaps {mode}")
    yield _c("unmaps hole", SEGV)


def limits() -> Iterator[Row]:
    """Sandboxes, limits, sanitizers."""
    for filter_, deaths in (
        (
            "few",
            (
                ("exit", 3),
                ("_exit", 3),
                ("null", SEGV),
                ("abort", ABRT),
                ("fork", 3),
                ("thread", 3),
                ("unflushed", 3),
                ("handled", 3),
            ),
        ),
        ("strict", (("exit", 3), ("null", SEGV))),
        ("fallocate", (("exit", 3), ("null", SEGV), ("fork", 3), ("unflushed", 3))),
        ("errno", (("exit", 3), ("null", SEGV), ("abort", ABRT), ("fork", 3), ("thread", 3))),
        ("trap", (("exit", 3), ("null", SEGV), ("abort", ABRT), ("fork", 3), ("handled", 3))),
    ):
        for death, status in deaths:
            yield _c(f"sandboxed {filter_} {death}", status, powers=("plain", "unprivileged"))
    yield _c("limits descriptors 64")
    yield _c("limits descriptors 3")
    yield _c("limits all-closed", ABRT)
    yield _c("limits file-size")
    yield _c("limits memory-lock", powers=("plain", "unprivileged"))
    yield _c("limits lock-limited", powers=("plain", "unprivileged"))
    yield _c("limits threads 1000")
    yield _c("limits threads 25000", slow=True, powers=("plain",))
    yield _c("limits processes", powers=("unprivileged",))
    yield _c("limits stack", SEGV)
    yield _c("limits mappings", slow=True, powers=("plain",))
    yield _c("limits cpu", KILL, slow=True, powers=("plain",))
    for kib, mib in ((1300000, 700), (400000, 200), (100000, 20)):
        yield _sh(f"ulimit -v {kib}; exec {{python}} {{programs}}/memory.py {mib}")
    yield _sh("ulimit -v 800000; ls -d /")
    yield _sh("ulimit -v 50000; /bin/true; echo $?; (ulimit -v 20000; /bin/true; echo $?); echo done")
    yield _sh("ulimit -n 5; /bin/true; echo $?")
    yield _sh("ulimit -s unlimited; exec {programs}/safepoint 2 5")
    for limit in (64, 8192):  # KiB; the second is the kernel's default
        yield _sh(f"ulimit -l {limit}; exec {{programs}}/limits memory-lock", powers=("plain", "unprivileged"))
    yield _sh("ulimit -f 0; /bin/true; echo $?; exec {programs}/storm 3 fork")
    yield _c("shared_memory write", full_shm=True, powers=("plain",))
    yield _c("shared_memory store", BUS, full_shm=True, powers=("plain",))
    for mode, status in (("", 0), ("overflow", 1), ("use-after-free", 1), ("null", 1), ("fork", 0)):
        yield _c(f"sanitized.address {mode}", status, powers=("plain",))
    for mode, status in (("", 0), ("race", 66), ("fork", 0)):
        yield _c(f"sanitized.thread {mode}", status, powers=("plain",))
    for mode, status in (("undefined", 0), ("null", SEGV)):
        yield _c(f"sanitized.undefined {mode}", status, powers=("plain",))


def cells_of(rows: Iterable[Row]) -> Iterator[Cell]:
    """Each row in each way, with each power."""
    return (Cell(row, way, power) for row in rows for power in row.powers for way in row.ways)


ROWS = (*waits(), *crashes(), *handlers(), *processes(), *limits())
CELLS = tuple(cells_of(ROWS))


@functools.cache
def covering() -> frozenset[Cell]:
    """For `make test-all`: each row by environment alone, and once in the next of its other pairs of way and power.

    Of `waits` the launcher's half has one row in four: all of them take the same code path there.
    """
    chosen: set[Cell] = set()
    turn = itertools.count()
    for row in ROWS:
        if row.slow:
            continue
        chosen.add(Cell(row, "environment", row.powers[0]))
        others = [
            Cell(row, way, power)
            for way in row.ways
            for power in row.powers
            if (way, power) != ("environment", row.powers[0])
        ]
        number = next(turn)
        if others and (row.group not in ("waits", "waits.py", "sent") or number % 4 == 0):
            chosen.add(others[number % len(others)])
    return frozenset(chosen)


@functools.cache
def quick() -> frozenset[Cell]:
    """For `make test`: all of that by environment with the first power, and a quarter of each other pair.

    Of the rows whose cost is compared, which run up to forty times, those of a single process.
    """
    chosen: set[Cell] = set()
    others: dict[tuple[Way, Power], list[Cell]] = {}
    for cell in (cell for cell in CELLS if cell in covering() and (cell.row.cost_us or 0) <= 2 * EXEC_US):
        if (cell.way, cell.power) == ("environment", cell.row.powers[0]):
            chosen.add(cell)
        else:
            others.setdefault((cell.way, cell.power), []).append(cell)
    return frozenset(chosen.union(*(cells[::4] for cells in others.values())))
