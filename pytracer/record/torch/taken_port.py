"""The port that a server could not get, and who has it: at an exception whose words are those of an address in use.

As the variables `taken port`, `taken port state` ("listening", "connected", "closing", "free"), `taken port user` (the
uid of the socket) and `taken port holder pid` and so on. Once the job has ended nobody can find out: most often the
owner is one of its own processes. The port is what the message names, or else what a variable or constant on the way to
the failing call has. No code of the program runs.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import itertools
import re
from collections.abc import Iterator
from types import FrameType, ModuleType, TracebackType

from pytracer._library_files import is_library_file
from pytracer.record.config import records_values
from pytracer.record.torch.descriptors import chain, errno_of
from pytracer.record.torch.near_names import attributes_of
from pytracer.record.torch.port_holders import Sockets, holder_of, sockets_of

_IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress (?:is )?already in use|[Pp]ort \d+ is.* in use")
_NOT_BOUND = re.compile(r"[Ff]ailed to bind to address")  # of gRPC, for any reason
_PORT_NAME = re.compile(r"(?:^|_)port(?:s|\d|$|_)")
# `port: 29500`, `('127.0.0.1', 8000)`, `[::]:29500`, `tcp://host:5555`.
_PORT = re.compile(r"\b[Pp]ort:? (\d{1,5})\b|\('[^']*', (\d{1,5})\b|(?<=[\w\]*]):(\d{1,5})\b")
_OF_OTHERS = "Traceback (most recent call last)"
_MESSAGE_CHARACTERS = 4000
_LARGEST = 65535
_LOOKED_AT, _FRAMES, _MOST = 256, 8, 16


def taken_port(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """Nothing for other exceptions, below `--no-values`, and where no port is known."""
    refused = refusal(error) if records_values() else None
    if refused is None:
        return []
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        named = [int(next(filter(None, groups))) for groups in _PORT.findall(_texts(refused))]
        frames = _frames(trace if refused is error else refused.__traceback__)
        elsewhere = not named and any(_has_other_address(frame) for frame in frames)
        found = named or [port for frame in frames for port in _of_frame(frame) if not elsewhere]
        sockets = sockets_of([*dict.fromkeys(item for item in found if 0 < item <= _LARGEST)][:_MOST])
        port = _meant(sockets)
        state = sockets[port].state if port is not None else "free"
        if port is not None and (state == "listening" or (_is_in_use(refused) and (named or state != "free"))):
            facts = {"": str(port), **_facts(sockets[port])}
    return [{"name": f"taken port {name}".rstrip(), "value": value} for name, value in facts.items()]


def refusal(error: BaseException) -> BaseException | None:
    """It, or what it was raised for, where that says that an address is in use; not where another process raised it."""
    return next((item for item in chain(error) if _is_in_use(item) or _says_so(_NOT_BOUND, item)), None)


def _is_in_use(error: BaseException) -> bool:
    return errno_of(error) == errno.EADDRINUSE or _says_so(_IN_USE, error)


def _says_so(words: re.Pattern[str], error: BaseException) -> bool:
    text = _texts(error)
    return words.search(text) is not None and _OF_OTHERS not in text


def _facts(sockets: Sockets) -> dict[str, str]:
    facts = {"state": sockets.state}
    held = sockets.listening or sockets.connected
    users = {*held.values()}
    if len(users) == 1:
        facts["user"] = str(users.pop())
    if not held and sockets.closing:
        facts["closing"] = str(sockets.closing)
    return {**facts, **{f"holder {name}": value for name, value in (holder_of(held) if held else {}).items()}}


def _meant(sockets: dict[int, Sockets]) -> int | None:
    """Of several, the only one at which somebody listens; sockets that are bound and do not listen are in no table."""
    if len(sockets) == 1:
        return next(iter(sockets))
    listening = [port for port, item in sockets.items() if item.listening]
    return listening[0] if len(listening) == 1 else None


def _texts(error: BaseException) -> str:
    """Those that it was made with: an OSError has its number before its text."""
    texts = [item for item in vars(BaseException)["args"].__get__(error) if type(item) is str]
    return " ".join(texts)[:_MESSAGE_CHARACTERS].partition("Exception raised from")[0]


def _frames(trace: TracebackType | None) -> list[FrameType]:
    """From the innermost one to that of the program's line."""
    found: list[FrameType] = []
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    found.reverse()
    own = next((at for at, item in enumerate(found) if not is_library_file(item.f_code.co_filename)), len(found))
    return [*found[: min(own, _FRAMES)], *found[own : own + 1]]


def _has_other_address(frame: FrameType) -> bool:
    """Whether it is about a path or a datagram socket: the refused address may be that."""
    return any(_is_other_address(name, value) for name, value in _held(frame))


def _is_other_address(name: str, value: object) -> bool:
    if issubclass(type(value), _socket.socket):  # what its own class says of it is not asked
        family, kind = (vars(_socket.socket)[part].__get__(value) for part in ("family", "type"))
        return family not in (_socket.AF_INET, _socket.AF_INET6) or kind != _socket.SOCK_STREAM
    return name in ("address", "path") and type(value) is str and "/" in value and "://" not in value


def _of_frame(frame: FrameType) -> Iterator[int]:
    for name, value in _held(frame):
        yield from _of_value(name, value)
    yield from (port for value in frame.f_code.co_consts for port in _of_value("", value))


def _held(frame: FrameType) -> Iterator[tuple[str, object]]:
    """Variables, and the attributes of them that its code names."""
    code, names = frame.f_code, frame.f_code.co_names
    local = dict(itertools.islice(frame.f_locals.items(), _LOOKED_AT))
    held = [*local.items(), *((name, frame.f_globals.get(name)) for name in names)]
    for name, value in held if code.co_name != "<module>" else [item for item in held if item[0] in names]:
        yield name, value
        inside = attributes_of(value) if not issubclass(type(value), (type, ModuleType)) else {}
        yield from ((part, inside[part]) for part in names if part in inside)


def _of_value(name: str, value: object) -> Iterator[int]:
    """An address of two parts or more, or a number that is called a port."""
    if type(value) is tuple and len(value) > 1 and type(value[0]) is str and type(value[1]) is int:
        yield value[1]
    elif type(value) is int and _PORT_NAME.search(name.lower()):
        yield value
