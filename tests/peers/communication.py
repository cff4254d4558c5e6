"""Communication libraries besides torch: gRPC, with threads and forks, and UCX, which handles SIGSEGV."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

from tests.peers.peer import PROGRAMS, UNTRACED, Done, Peer, Results, Setting, ended
from tests.support.cli import ROOT, clean_environment

GRPC_CRASHES = {"crash-client": "SIGSEGV", "crash-server": "SIGSEGV", "abort-server": "SIGABRT"}
TRANSPORTS = ("tcp", "posix", "sysv", "cma")
TESTS = ("tag_lat", "ucp_put_bw", "ucp_am_bw")
UCX_DEATHS = ("null", "abort", "thread", "sent", "faulthandler", "hooks", "exit")
# $1: a port. The server is killed as soon as it listens.
KILLED_SERVER = """
ucx_perftest -p $1 & server=$!
until grep -q ":$(printf %04X $1) [0-9A-F]*:0000 0A" /proc/net/tcp; do sleep 0.05; done
kill -SEGV $server
wait $server
"""


def _reported(at: Setting, signal: str) -> str:
    """Whether the report names the signal; untraced there is no report."""
    if at.way == UNTRACED:
        return "True"
    words = [sys.executable, "-m", "pytracer", "inspect", str(at.run_directory), "--json"]
    environment = clean_environment(PYTHONPATH=str(ROOT))
    return str(signal in subprocess.run(words, capture_output=True, text=True, check=False, env=environment).stdout)


def _grpc(at: Setting) -> Results:
    """Answers and statuses of a client and a server; for crashes, our report, too."""
    program = PROGRAMS / "grpc_calls.py"
    results: Results = {}
    for mode in ("calls", "fork", *GRPC_CRASHES):
        shutil.rmtree(at.run_directory, ignore_errors=True)
        done = at.run([sys.executable, program, mode], GRPC_ENABLE_FORK_SUPPORT="1", GRPC_VERBOSITY="NONE")
        results |= {f"{mode}: status": str(done.status), f"{mode}: output": done.stdout}
        if mode in GRPC_CRASHES:
            results[f"{mode}: reported"] = _reported(at, GRPC_CRASHES[mode])
    return results


def _ucx(at: Setting) -> Results:
    """Transfers over loopback and shared memory; crashes, which UCX's own handler writes about."""
    results: Results = {}
    for transport in TRANSPORTS:
        for test in TESTS:
            results |= _transfer(at, transport, test)
    words = ["sh", "-c", KILLED_SERVER, "sh", str(_free_port())]
    results |= _crash("killed server", at.run(words, UCX_TLS="tcp"))
    for how in ("bt", "none"):
        for death in UCX_DEATHS:
            shutil.rmtree(at.run_directory, ignore_errors=True)
            done = at.run([sys.executable, PROGRAMS / "ucx_crash.py", death], UCX_HANDLE_ERRORS=how)
            results |= _crash(f"{death}, {how}", done)
            if death != "exit":
                signal = "SIGABRT" if death == "abort" else "SIGSEGV"
                results[f"{death}, {how}: reported"] = _reported(at, signal)
    return results


def _transfer(at: Setting, transport: str, test: str) -> Results:
    tls = {"cma": "cma,sm"}.get(transport, f"{transport},self")
    environment = {"UCX_TLS": tls, "UCX_NET_DEVICES": "lo" if transport == "tcp" else "all"}
    port = str(_free_port())
    server = at.start(["ucx_perftest", "-p", port], **environment)
    words = ["ucx_perftest", "-p", port, "-t", test, "-n", "2000", "-s", "4096", "-v", "-f", "127.0.0.1"]
    # The client may start before the server listens: it is retried.
    for _ in range(20):
        client = at.run(words, seconds=120, **environment)
        if client.status == 0 or server.poll() is not None:
            break
    served = ended(server)
    name = f"{transport} {test}"
    return {
        f"{name}: status": f"client {client.status}, server {served.status}",
        f"{name}: lines": str(len(client.stdout.splitlines())),
    }


def _crash(name: str, done: Done) -> Results:
    """The status, and the output of UCX and faulthandler."""
    caught = [line.partition("] ")[2].partition(" at address")[0] for line in done.lines if "Caught signal" in line]
    return {
        f"{name}: status": str(done.status),
        f"{name}: output": done.stdout,
        f"{name}: UCX says": "; ".join(caught),
        f"{name}: lines": len(done.lines),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _no_grpc() -> str:
    return "" if importlib.util.find_spec("grpc") else "grpcio is not installed"


def _no_ucx() -> str:
    return "" if shutil.which("ucx_perftest") else "ucx_perftest is not installed"


def peers() -> Iterator[Peer]:
    """Both peers."""
    yield Peer("gRPC", _grpc, _no_grpc)
    yield Peer("UCX", _ucx, _no_ucx)
