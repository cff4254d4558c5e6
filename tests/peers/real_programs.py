"""Real programs that handle their own faults or start many others, each with the behaviour that must not change."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.peers.peer import PROGRAMS, Done, Peer, Results, Setting, needs, no_source, source_tree


def _of(name: str, done: Done) -> Results:
    """Status and standard output of a command."""
    text = done.stdout if len(done.stdout) < 400 else "sha256 " + hashlib.sha256(done.stdout.encode()).hexdigest()[:16]
    return {f"{name}: status": str(done.status), f"{name}: output": text}


def _bash(at: Setting) -> Results:
    results: Results = {}
    for script in sorted(PROGRAMS.glob("*.bash")):
        results |= _of(script.stem, at.run(["bash", script]))
    return results


def _java(at: Setting) -> Results:
    """Implicit null checks and stack overflows are SIGSEGV, safepoints too; a crash writes hs_err."""
    subprocess.run(["javac", "-nowarn", "-d", at.work, PROGRAMS / "Faults.java"], check=True, capture_output=True)
    results: Results = {}
    options = ["-Xmx256m", "-Xss512k", "-XX:ErrorFile=hs_err.log"]
    for mode in ("null-checks", "stack-overflow", "threads", "exit"):
        results |= _of(mode, at.run(["java", *options, "-cp", ".", "Faults", mode]))
    for mode in ("crash", "crash-in-thread", "abort"):
        (at.work / "hs_err.log").unlink(missing_ok=True)
        done = at.run(["java", *options, "-cp", ".", "Faults", mode])
        results[f"{mode}: status"] = str(done.status)
        try:
            lines = (at.work / "hs_err.log").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        results[f"{mode}: lines of hs_err"] = len(lines)
        results[f"{mode}: hs_err is complete"] = str("END." in lines)
        results[f"{mode}: errors while reporting"] = str(
            sum("error occurred during error reporting" in line for line in lines)
        )
        results[f"{mode}: first words"] = next((line for line in lines if "SIG" in line), "").split(" at pc")[0]
    return results


def _node(at: Setting) -> Results:
    """Out-of-bounds accesses of WebAssembly are SIGSEGV."""
    results = _of("traps", at.run(["node", PROGRAMS / "traps.js"]))
    done = at.run(["node", "-e", "process.abort()"])
    return results | {"abort: status": str(done.status)} | _of("exit", at.run(["node", "-e", "process.exit(7)"]))


def _go(at: Setting) -> Results:
    """A nil dereference is SIGSEGV and becomes a panic; SIGURG preempts goroutines; cgo chains to earlier handlers."""
    results: Results = {}
    for source in ("faults.go", "cgo.go"):
        built = at.work / source.removesuffix(".go")
        make = ["go", "build", "-o", str(built), str(PROGRAMS / source)]
        env = {
            **os.environ,
            "HOME": str(at.work),
            "GOCACHE": "/tmp/peers-go-cache",
            "GOFLAGS": "-mod=mod",
            "GO111MODULE": "off",
        }
        subprocess.run(make, check=True, capture_output=True, env=env, cwd=at.work)
        for mode in ("recover", "preempt", "crash", "exit"):
            done = at.run([built, mode])
            results |= _of(f"{source} {mode}", done)
            results[f"{source} {mode}: first words"] = done.lines[0].split("addr=")[0] if done.lines else ""
            results[f"{source} {mode}: lines of the traceback"] = len(done.lines)
    return results


def _git(at: Setting) -> Results:
    return _of("history", at.run(["sh", PROGRAMS / "history.sh"], GIT_COMMITTER_DATE="@1"))


def _sqlite(at: Setting) -> Results:
    query = (
        "create table t(n); with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) "
        "insert into t select x from c; "
        "select sum(n) from t; vacuum; pragma integrity_check;"
    )
    return _of("query", at.run(["sqlite3", "a.db", query]))


def _gdb(at: Setting) -> Results:
    """A debugger sees the program's own signals, each once."""
    built = _compile(at, PROGRAMS / "debuggee.c")
    results: Results = {}
    for mode in ("crash", "abort", "handled", "exit"):
        words = ["gdb", "-nx", "-batch", "-ex", "run", "-ex", "bt 2", "-ex", "continue", "--args", str(built), mode]
        out = at.run(words).stdout
        results[f"{mode}: signals"] = "; ".join(line for line in out.splitlines() if "signal SIG" in line)
        ends = [
            line.partition(" (process ")[0] + line.rpartition(") ")[2]
            for line in out.splitlines()
            if "exited" in line or "terminated" in line
        ]
        results[f"{mode}: end"] = ends[0] if ends else ""
    return results


def _compile(at: Setting, source: Path, *libraries: str) -> Path:
    built = at.work / source.stem
    subprocess.run(
        ["cc", "-O1", "-g", "-D_GNU_SOURCE", "-pthread", "-o", built, source, *libraries],
        check=True,
        capture_output=True,
    )
    return built


def _has_library(name: str, header: str) -> str:
    program = f"#include <{header}>\nint main(void) {{ return 0; }}\n"
    try:
        done = subprocess.run(
            ["cc", "-x", "c", "-o", "/dev/null", "-", f"-l{name}"],
            input=program,
            text=True,
            capture_output=True,
            check=False,
        )
    except OSError:
        return "cc is not installed"
    return "" if done.returncode == 0 else f"lib{name}-dev is not installed"


def _gc(at: Setting) -> Results:
    """Boehm's incremental collector finds written pages by mprotect and SIGSEGV, and stops threads by signals."""
    built = _compile(at, PROGRAMS / "collected.c", "-lgc")
    return _of("incremental", at.run([built, "incremental"])) | _of("threads", at.run([built, "threads"]))


def _own_tests(name: str, make: str, pattern: str, at: Setting) -> Results:
    """Builds the package untraced, and runs the programs of its tests."""
    source = source_tree(name)
    assert source is not None
    built = Path("/tmp") / f"peers-{name}-{os.getuid()}"
    if not (built / ".built").exists():
        shutil.rmtree(built, ignore_errors=True)
        shutil.copytree(source, built)
        subprocess.run(["sh", "-c", make], cwd=built, check=True, capture_output=True)
        (built / ".built").touch()
    results: Results = {}
    for test in sorted(built.glob(pattern)):
        if test.is_file() and os.access(test, os.X_OK) and not test.suffix and test.read_bytes()[:4] == b"\x7fELF":
            results[test.name] = str(at.run([test], seconds=300, GC_PRINT_STATS="").status)
    return results


def _sigsegv_tests(at: Setting) -> Results:
    return _own_tests("libsigsegv", "./configure -q && make -s && make -s check TESTS=", "tests/*", at)


def _gc_tests(at: Setting) -> Results:
    return _own_tests("libgc", f"sh {PROGRAMS / 'build_libgc_tests.sh'}", "*", at)


def _sigsegv(at: Setting) -> Results:
    """GNU libsigsegv: faults and stack overflows that a program recovers from."""
    built = _compile(at, PROGRAMS / "recovers.c", "-lsigsegv")
    return _of("fault", at.run([built, "fault"])) | _of("overflow", at.run([built, "overflow"]))


def peers() -> Iterator[Peer]:
    """All peers of this file."""
    yield Peer("bash", _bash, needs("bash"), quick=True)
    yield Peer("OpenJDK", _java, needs("java", "javac"))
    yield Peer("node", _node, needs("node"))
    yield Peer("Go", _go, needs("go", "gcc"))
    yield Peer("git", _git, needs("git"), quick=True)
    yield Peer("sqlite", _sqlite, needs("sqlite3"))
    yield Peer("gdb", _gdb, needs("gdb", "cc"))
    yield Peer("libgc", _gc, lambda: _has_library("gc", "gc.h"))
    yield Peer("libgc's own tests", _gc_tests, lambda: no_source("libgc"))
    yield Peer("libsigsegv", _sigsegv, lambda: _has_library("sigsegv", "sigsegv.h"))
    yield Peer("libsigsegv's own tests", _sigsegv_tests, lambda: no_source("libsigsegv"))
