"""Runs test suites and programs of other projects untraced and traced, and compares them test by test.

A test differs when no traced run of it ended as one of its untraced runs: where results are not equal at first, the
peer is run again in both ways, up to --repeat times, to distinguish flaky tests from those that fail because of
pytracer.

Exit status: 1 when something differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.peers import communication, python, real_programs, servers, torch_tests  # noqa: E402
from tests.peers.peer import UNTRACED, WAYS, Peer, Results, setting  # noqa: E402
from tests.support.machine import machine  # noqa: E402

NEAR = 0.2  # relative difference of numbers

PAGE = """# Tests and programs of other projects

<!-- Written by `make test-peers ARGS='--all --write docs/measurements/peers.md'`. -->

Test suites and programs of other projects, run untraced and traced, and compared test by test: by environment alone
(`LD_PRELOAD` without a launcher), and below `pytracer run`; torch's operators at each level and in guard mode,
by the bits of their results. A test differs if no traced run of it ended as one of its untraced runs; tests that
were not equal at first were run again, up to {repeat} times.

Programs are bash scripts, OpenJDK (implicit null checks, stack overflows, safepoints; crashes with their hs_err
file), node (WebAssembly's traps), Go with and without cgo, redis, nginx, postgres, git, sqlite, gdb, Boehm's
collector, GNU libsigsegv, UCX (whose library installs a SIGSEGV handler when it is loaded), gRPC in Python.
On Debian they are installed by `apt-get install openjdk-17-jdk-headless nodejs golang-go redis-server nginx-light
postgresql git sqlite3 gdb libgc-dev libsigsegv-dev ucx-utils` and `pip install grpcio`; the tests of libgc and
libsigsegv, and torch's of multiprocessing, by `apt-get source libgc libsigsegv pytorch` in the directory that
PYTRACER_PEER_SOURCES names. torch's distributed tests run in slices of 20 tests, each a process with a time limit;
forked ranks have torch already, spawned ones load it, which takes most of the time. Other interpreters
come from PATH or PYTRACER_TEST_PYTHONS. Missing programs are left out; CI runs `make test-peers
ARGS=--quick`.

{date}, {machine}. {verdict}

{table}

## Differences

{differences}

## Not run

{missing}
"""


@dataclass
class Compared:
    """A peer, run untraced and in one mode."""

    peer: Peer
    mode: str
    untraced: list[Results] = field(default_factory=list)
    traced: list[Results] = field(default_factory=list)
    seconds: float = 0

    @property
    def names(self) -> list[str]:
        """All tests of both."""
        return list(dict.fromkeys(name for results in [*self.untraced, *self.traced] for name in results))

    def differences(self) -> dict[str, tuple[str, str]]:
        """Test -> its results untraced and traced."""
        found = {}
        for name in self.names:
            before = [results.get(name, "missing") for results in self.untraced]
            now = [results.get(name, "missing") for results in self.traced]
            if not any(_alike(a, b) for a in before for b in now):
                found[name] = (_words(before), _words(now))
        return found


def _alike(a: str | int, b: str | int) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a - b) <= max(2, NEAR * max(a, b))
    return a == b


def _words(values: Sequence[str | int]) -> str:
    return ", ".join(repr(value)[:300] for value in dict.fromkeys(values))


def _compare(peer: Peer, every: int, repeat: int) -> Iterator[Compared]:
    untraced = [_once(peer, UNTRACED, (), every)]
    for mode, (way, options) in peer.modes.items():
        begun = time.monotonic()
        result = Compared(peer, mode, untraced, [_once(peer, way, options, every)])
        for _ in range(repeat):
            if not result.differences():
                break
            untraced.append(_once(peer, UNTRACED, (), every))
            result.traced.append(_once(peer, way, options, every))
        result.seconds = time.monotonic() - begun
        yield result


def _once(peer: Peer, way: str, options: tuple[str, ...], every: int) -> Results:
    with setting(way, options, every) as at:
        return peer.act(at)


def _chosen(options: argparse.Namespace) -> list[Peer]:
    all_peers = [
        *python.peers(),
        *torch_tests.peers(),
        *real_programs.peers(),
        *servers.peers(),
        *communication.peers(),
    ]
    if options.names:
        return [peer for peer in all_peers if any(word.lower() in peer.name.lower() for word in options.names)]
    if options.quick:
        quick = [peer for peer in all_peers if peer.quick]
        return [_one_way(peer, n) if peer.modes.keys() == set(WAYS) else peer for n, peer in enumerate(quick)]
    return [peer for peer in all_peers if options.all or not peer.slow]


def _one_way(peer: Peer, number: int) -> Peer:
    """The peer in one of the two ways, in turn."""
    way = WAYS[number % len(WAYS)]
    return dataclasses.replace(peer, modes={way: peer.modes[way]})


def _table(compared: Sequence[Compared]) -> str:
    lines = ["| peer | way | tests | equal | differ |", "|---|---|---:|---:|---:|"]
    for item in compared:
        total, differ = len(item.names), len(item.differences())
        lines.append(f"| {item.peer.name} | {item.mode} | {total} | {total - differ} | {differ} |")
    return "\n".join(lines)


def _differences(compared: Sequence[Compared]) -> str:
    return "\n".join(
        f"- {item.peer.name}, {item.mode}, {name.replace(chr(10), ' ')}: untraced {before}; traced {now}"
        for item in compared for name, (before, now) in item.differences().items()
    ) or "None."  # fmt: skip


def _verdict(compared: Sequence[Compared]) -> str:
    total = sum(len(item.names) for item in compared)
    differ = sum(len(item.differences()) for item in compared)
    return f"{total} results of {len({item.peer.name for item in compared})} peers compared: {differ} differ."


def main() -> int:
    """Runs, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="only peers whose name contains one of these words")
    parser.add_argument("--quick", action="store_true", help="only what a fresh machine has, in a few minutes")
    parser.add_argument("--all", action="store_true", help="those that take more than a few minutes, too")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of suites, run each N-th test")
    parser.add_argument(
        "--repeat", type=int, default=3, metavar="N", help="run what is not equal so many times more (3)"
    )
    parser.add_argument("--list", action="store_true", help="say which peers there are, and why some cannot be run")
    parser.add_argument("--write", metavar="FILE", type=Path)
    options = parser.parse_args()
    compared: list[Compared] = []
    missing: list[str] = []
    for peer in _chosen(options):
        why = peer.why_not()
        if why or options.list:
            print(f"{peer.name}: {why or 'can be run'}", flush=True)
            missing += [f"- {peer.name}: {why}"] if why else []
            continue
        for item in _compare(peer, options.every, options.repeat):
            compared.append(item)
            differ = item.differences()
            print(
                f"{peer.name}, {item.mode}: {len(item.names)} results, {len(differ)} differ, {item.seconds:.0f} s",
                flush=True,
            )
            for name, (before, now) in differ.items():
                print(f"  {name}: untraced {before}; traced {now}", flush=True)
    if options.list:
        return 0
    if not options.all or options.names or options.every > 1:
        missing.append(f"- what this run left out: it was `scripts/peers.py {shlex.join(sys.argv[1:])}`")
    print(f"\n{_table(compared)}\n\n{_verdict(compared)}")
    if options.write:
        page = PAGE.format(
            repeat=options.repeat, date=datetime.date.today().isoformat(), machine=machine(),
            verdict=_verdict(compared), table=_table(compared),
            differences=_differences(compared), missing="\n".join(missing) or "Nothing.",
        )  # fmt: skip
        options.write.write_text(page, encoding="utf-8")
    return int(any(item.differences() for item in compared))


if __name__ == "__main__":
    sys.exit(main())
