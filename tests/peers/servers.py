"""Servers: started, queried, and ended; with the output of their clients and their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.peers.peer import ENVIRONMENT, Peer, Results, Setting, ended, needs

NOBODY = 65534
STARTING_SECONDS = 30
NGINX = """
{user}
daemon off; worker_processes 2; pid {work}/pid; error_log {work}/error.log;
events {{}}
http {{
  access_log off; client_body_temp_path {work}; proxy_temp_path {work}; fastcgi_temp_path {work};
  uwsgi_temp_path {work}; scgi_temp_path {work};
  server {{ listen unix:{work}/http.sock; root {work}; }}
}}
"""
QUERIES = (
    "create table t as select generate_series(1, 50000) as n", "select sum(n), count(*) from t", "select pg_sleep(0.1)",
    "checkpoint",
)  # fmt: skip


def _answer(words: Sequence[str]) -> str:
    """The result of an untraced client."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def _until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STARTING_SECONDS
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.05)


def _redis(at: Setting) -> Results:
    """A crash leaves a log, written by the server's own handler of SIGSEGV."""
    results: Results = {"test-memory": str(at.run(["redis-server", "--test-memory", "2"]).status)}
    for how, last in (("shutdown", ["SHUTDOWN", "NOSAVE"]), ("crash", ["DEBUG", "SEGFAULT"])):
        results |= _redis_until(at, how, last)
    return results


def _redis_until(at: Setting, how: str, last: list[str]) -> Results:
    socket = at.work / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--enable-debug-command", "yes"]
    server = at.start(["redis-server", *options])
    say = ["redis-cli", "-s", str(socket)]
    _until(lambda: _answer([*say, "PING"]) == "PONG")
    answers = [_answer([*say, *words]) for words in (["SET", "a", "1"], ["GET", "a"], ["BGSAVE"], last)]
    done = ended(server)
    results: Results = {f"{how}: answers": repr(answers[:3]), f"{how}: status": str(done.status)}
    if how == "crash":
        log = done.stdout.splitlines()
        results["crash: lines of the log"] = len(log)
        results["crash: log is complete"] = str(any("REDIS BUG REPORT END" in line for line in log))
    return results


def _nginx(at: Setting) -> Results:
    """A master and its workers; the configuration is reloaded, which starts new workers."""
    (at.work / "index.html").write_text("hello\n", encoding="utf-8")
    user = "user root;" if os.geteuid() == 0 else ""
    (at.work / "nginx.conf").write_text(NGINX.format(user=user, work=at.work), encoding="utf-8")
    server = at.start(["nginx", "-p", at.work, "-c", at.work / "nginx.conf", "-e", at.work / "error.log"])
    socket = at.work / "http.sock"
    _until(socket.exists)
    fetch = ["curl", "-s", "--unix-socket", str(socket), "http://localhost/"]
    pages = [_answer(fetch) for _ in range(20)]
    master = int((at.work / "pid").read_text(encoding="ascii"))
    workers = _children(master)
    os.kill(master, signal.SIGHUP)
    _until(lambda: bool(_children(master)) and not _children(master) & workers)
    pages += [_answer(fetch) for _ in range(20)]
    os.kill(master, signal.SIGQUIT)
    done = ended(server)
    died = (at.work / "error.log").read_text(encoding="utf-8").count("exited on signal")
    return {"pages": str(pages.count("hello")), "status": str(done.status), "workers that died of a signal": str(died)}


def _children(pid: int) -> set[str]:
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())


def _postgres(at: Setting) -> Results:
    """Postgres refuses to run as root; each connection is a process, and all of them share memory."""
    data, someone = at.work / "data", list[str]()
    if os.geteuid() == 0:
        someone = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        os.chown(at.work, NOBODY, NOBODY)
        if at.way == ENVIRONMENT:
            at.run_directory.mkdir()
            os.chown(at.run_directory, NOBODY, NOBODY)
    made = at.run([*someone, "initdb", "-D", data, "-A", "trust", "-U", "me", "--no-sync"])
    results: Results = {"initdb: status": str(made.status)}
    server = at.start([*someone, "postgres", "-D", data, "-c", "listen_addresses=", "-k", at.work, "-c", "fsync=off"])
    ask = ["psql", "-h", str(at.work), "-U", "me", "-d", "postgres", "-Atc"]
    _until(lambda: _answer([*ask, "select 1"]) == "1")
    results |= {query: _answer([*ask, query]) for query in QUERIES}
    os.kill(int((data / "postmaster.pid").read_text(encoding="utf-8").split()[0]), signal.SIGINT)
    done = ended(server)
    results["server: status"] = str(done.status)
    results["server: processes that died"] = str(done.stderr.count("was terminated by signal"))
    return results


def peers() -> Iterator[Peer]:
    """All peers of this file."""
    yield Peer("redis", _redis, needs("redis-server", "redis-cli"))
    yield Peer("nginx", _nginx, needs("nginx", "curl"))
    yield Peer("postgres", _postgres, needs("postgres", "initdb", "psql", "setpriv"))
