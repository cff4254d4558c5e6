"""Who has a port: at an exception whose words are those of an address in use, by the sockets of this machine."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Listener
from pathlib import Path
from typing import BinaryIO

import pytest

from pytracer.record.torch import port_holders
from pytracer.record.torch.taken_port import taken_port

_HELD = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
time.sleep(60)
"""


def raised(call: Callable[[], object]) -> dict[str, str]:
    """What is recorded of the error that a call raises, by name."""
    try:
        call()
    except Exception as error:
        found = taken_port(error, error.__traceback__)
        return {item["name"].removeprefix("taken port").strip(): item["value"] for item in found}
    raise AssertionError("it raised nothing")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listening one of this process."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def free_port() -> int:
    """One that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def bound(address: tuple[str, int]) -> object:
    """A plain socket."""
    with socket.socket() as made:
        made.bind(address)
    return made


class Settings:
    """As programs keep their options."""

    def __init__(self, port: int) -> None:
        self.port = port

    def serve(self) -> object:
        """Has the port as an attribute only."""
        with socket.socket() as made:
            made.bind(("127.0.0.1", self.port))
        return made


async def _served(port: int) -> object:
    return await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda port: bound(("127.0.0.1", port)), id="address"),
        pytest.param(lambda port: Settings(port).serve(), id="attribute"),
        pytest.param(lambda port: socket.create_server(("127.0.0.1", port)), id="create_server"),
        pytest.param(lambda port: HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler), id="http.server"),
        pytest.param(lambda port: Listener(("127.0.0.1", port)), id="multiprocessing"),
        pytest.param(lambda port: asyncio.run(_served(port)), id="asyncio"),
    ],
)
def test_the_holder_is_found_for_each_kind_of_server(call: Callable[[int], object], server: socket.socket) -> None:
    """By the message, or by what the frames of the failing call have."""
    port = int(server.getsockname()[1])
    facts = raised(lambda: call(port))
    assert facts.items() >= {"": str(port), "state": "listening", "holder pid": str(os.getpid())}.items()
    assert facts["holder parent"] == str(os.getppid())
    assert int(facts["holder seconds"]) >= 0


def test_the_words_of_a_store_name_the_port(server: socket.socket) -> None:
    """Of both of torch's servers; not those of another process's traceback."""
    port = server.getsockname()[1]
    new = f"The server socket has failed to listen. port: {port}, useIpv6: false, code: -98, name: EADDRINUSE"
    old = f"The server socket has failed to bind to [::]:{port} (errno: 98 - Address already in use)."
    for words in (new, old):
        assert taken_port(RuntimeError(words), None)[0] == {"name": "taken port", "value": str(port)}
    assert taken_port(RuntimeError(f"Traceback (most recent call last):\n {new}"), None) == []


def test_another_process_is_named_by_its_program_alone() -> None:
    """Nothing else of its command line is."""
    port = free_port()
    command = [sys.executable, "-c", _HELD, str(port), "--password=secret-word"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as held:
        try:
            assert held.stdout is not None
            assert held.stdout.readline() == "up\n"
            facts = raised(lambda: bound(("127.0.0.1", port)))
        finally:
            held.kill()
    assert facts["holder pid"] == str(held.pid)
    assert facts["holder parent"] == str(os.getpid())
    assert facts["holder program"].endswith(" -c")
    assert "secret" not in " ".join(facts.values())


def test_of_a_forked_socket_the_process_that_made_it_is_the_holder(server: socket.socket) -> None:
    """The child is counted."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"1")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(ready, 1)
        facts = raised(lambda: bound(server.getsockname()))
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert (facts["holder pid"], facts["holder count"]) == (str(os.getpid()), "2")


def test_of_unrelated_holders_there_is_but_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a socket of its own."""
    held = {os.getpid(): {"socket:[1]"}, 1: {"socket:[2]"}}
    monkeypatch.setattr(port_holders, "_holders", lambda _inodes: held.items())
    assert port_holders.holder_of([b"1", b"2"]) == {"count": "2"}
    held[os.getpid()].add("socket:[2]")
    assert port_holders.holder_of([b"1", b"2"])["pid"] == "1"


def test_only_the_command_line_of_the_oldest_holder_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for a lock of that process's memory; never of one that waits for a disk."""
    read: list[str] = []

    def opened(path: str, mode: str) -> BinaryIO:
        read.append(path)
        if path == "/proc/1/stat" and stuck:
            return io.BytesIO(b"1 (init) D 0 " + b"0 " * 17 + b"5 0")
        return open(path, mode)  # type: ignore[return-value]

    stuck = False
    held = {os.getpid(): {"socket:[1]"}, 1: {"socket:[1]"}}
    monkeypatch.setattr(port_holders, "_holders", lambda _inodes: held.items())
    monkeypatch.setattr(port_holders, "open", opened, raising=False)
    assert port_holders.holder_of([b"1"])["pid"] == "1"
    assert [path for path in read if path.endswith("cmdline")] == ["/proc/1/cmdline"]
    stuck = True
    read.clear()
    assert port_holders.holder_of([b"1"]).items() >= {"pid": "1", "start": "5", "count": "2"}.items()
    assert "/proc/1/cmdline" not in read


def test_a_failed_bind_of_grpc_is_of_a_listener_alone(server: socket.socket) -> None:
    """Its words are the same for a port that needs a privilege, and an address that this machine does not have."""
    words = "Failed to bind to address 127.0.0.1:{}; set GRPC_VERBOSITY=debug environment variable to see detail"
    assert taken_port(RuntimeError(words.format(free_port())), None) == []
    assert taken_port(RuntimeError(words.format(server.getsockname()[1])), None) != []


def test_of_an_address_that_is_no_tcp_port_no_variable_is_one(server: socket.socket, tmp_path: Path) -> None:
    """A path, a datagram socket; the frames have a port of another server."""
    path = str(tmp_path / "socket")

    def local(port: int) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path)
            with socket.socket(socket.AF_UNIX) as second:
                second.bind(path)

    def listener(port: int) -> None:
        Listener(path)

    def datagrams(port: int) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as first, socket.socket(type=socket.SOCK_DGRAM) as second:
            first.bind(("127.0.0.1", 0))
            second.bind(first.getsockname())

    port = server.getsockname()[1]
    for call in (local, listener, datagrams):
        assert raised(lambda call=call: call(port)) == {}  # type: ignore[misc]


def test_a_number_is_a_port_by_a_word_of_its_name(server: socket.socket) -> None:
    def other(report_every: int, transport: int, export_: int) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    def named(metrics_port: int) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    port = server.getsockname()[1]
    assert raised(lambda: other(port, port, port)) == {}
    assert raised(lambda: named(port))[""] == str(port)


def test_a_connection_is_no_server(server: socket.socket) -> None:
    """The system gave it the port."""
    with socket.create_connection(server.getsockname()) as client:
        facts = raised(lambda: bound(client.getsockname()))
    assert (facts["state"], facts["holder pid"]) == ("connected", str(os.getpid()))


def test_connections_that_still_close_have_no_holder() -> None:
    """TIME_WAIT of a server that is gone."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = server.getsockname()
        with socket.create_connection(address):
            server.accept()[0].close()
    facts = raised(lambda: bound(address))
    assert (facts["state"], facts["closing"]) == ("closing", "1")
    assert not any("holder" in name for name in facts)


def test_a_port_that_nobody_has_any_more_is_free() -> None:
    """Where the message names it; a number of a variable may be another one."""
    port = free_port()
    named = OSError(errno.EADDRINUSE, f"error while attempting to bind on address ('127.0.0.1', {port})")
    assert taken_port(named, None)[1] == {"name": "taken port state", "value": "free"}

    def fail(port: int) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    assert raised(lambda: fail(port)) == {}


def test_of_several_ports_the_one_with_a_listener_counts(server: socket.socket) -> None:
    """Of two with one each none does."""

    def fail(port: int, other_port: int) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    port = server.getsockname()[1]
    assert raised(lambda: fail(free_port(), port))[""] == str(port)
    with socket.create_server(("127.0.0.1", 0)) as second:
        assert raised(lambda: fail(second.getsockname()[1], port)) == {}


@pytest.mark.parametrize(
    "error", [OSError(errno.ECONNREFUSED, "Connection refused"), ValueError("port: 29500"), RuntimeError("")]
)
def test_other_exceptions_read_nothing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_holders, "open", None, raising=False)
    assert taken_port(error, None) == []


def test_nothing_is_recorded_without_values(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTRACER_NO_VALUES", "1")
    assert raised(lambda: bound(server.getsockname())) == {}


def test_too_long_a_table_is_given_up(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is about to end."""
    monkeypatch.setattr(port_holders, "_LONGEST_S", -1.0)
    assert raised(lambda: bound(server.getsockname())) == {}


def test_it_is_found_below_an_exception_that_was_raised_for_it(server: socket.socket) -> None:
    """With the frames of the first one."""

    def outer() -> None:
        try:
            bound(server.getsockname())
        except OSError as error:
            raise RuntimeError("no metrics") from error

    assert raised(outer)["holder pid"] == str(os.getpid())
