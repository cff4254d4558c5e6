"""Pickles of plain values are read; nothing else in a pickle ever runs."""

from __future__ import annotations

import collections
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.formats.plain_pickle import PickleError, load_plain
from tests.support.cli import clean_environment

PLAIN: dict[str, Any] = {
    "numbers": [0, -1, 255, 65536, -(2**31), 2**40, -(2**70), 1.5, True, False, None],
    "text": ["", "ä", "\u1234" * 300, b"\0\xff"],
    "nested": {1: (), 2: (1,), 3: (1, 2), 4: (1, 2, 3), 5: (1, 2, 3, 4), None: [[[]], {}]},
}


class Runs:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_pickle_reads_them(protocol: int) -> None:
    """All protocols, and the Python implementation, which uses other instructions."""
    value = PLAIN if protocol > 2 else {**PLAIN, "text": PLAIN["text"][:3]}  # bytes are calls before protocol 3
    assert load_plain(pickle.dumps(value, protocol)) == value
    dumps = vars(pickle)["_dumps"]  # of Python: it writes other instructions than that of C
    assert load_plain(dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_call_is_refused_and_not_made(protocol: int, tmp_path: Path) -> None:
    """The message names the instruction."""
    data = pickle.dumps({"entries": [Runs(tmp_path / "ran")]}, protocol)
    with pytest.raises(PickleError, match="plain values do not need; nothing of it was run"):
        load_plain(data)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "value", [collections.OrderedDict(a=1), {1, 2}, bytearray(b"x"), collections.Counter("a"), Path("x"), 1j, len]
)
def test_other_types_are_refused(value: object) -> None:
    """Also harmless ones: a dump has none of them."""
    with pytest.raises(PickleError):
        load_plain(pickle.dumps(value, 4))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"abc", b"\x80\x02", b"\x80\x02.", b"\x80\x02(.", b"\x80\x02h\x05.", b"\x80\x02u.", b"\x80\x02]K\x01s.",
        b"\x80\x02X\xff\xff\xff\xffx.", b"\x80\x04\x8d" + b"\xff" * 8 + b".", b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"\x80\x02r\xff\xff\xff\x7f.", b"I" + b"9" * 10_000 + b"\n.", b"}](K\x01e]s.", b"\x80\x02a.",
        b"K\x01K\x02K\x03e.",
    ],
)  # fmt: skip
def test_damage_is_an_error_of_ours(data: bytes) -> None:
    """Cut off, without a mark, with sizes and places that are not there."""
    with pytest.raises(PickleError):
        load_plain(data)


# A child with 512 MiB more address space than it starts with loads BOMB by READER.
_READ = """
import io, pickle, resource, sys
from pathlib import Path
from pytracer.decode.formats.plain_pickle import PickleError, load_plain

class Restricted(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError("refused")

bomb = {BOMB}
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
try:
    {READER}
except (PickleError, pickle.UnpicklingError) as error:
    sys.exit(f"refused: {error}")
except MemoryError:
    sys.exit("no memory")
"""
_RESTRICTED, _OURS = "Restricted(io.BytesIO(bomb)).load()", "load_plain(bomb)"


def _outcome(bomb: str, reader: str) -> str:
    code = _READ.replace("{BOMB}", bomb).replace("{READER}", reader)
    return subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), capture_output=True, text=True, check=False, timeout=120
    ).stderr.strip()


@pytest.mark.parametrize(
    ("bomb", "ours"),
    [
        pytest.param(r"b'\x80\x04]r\xf0\xff\xff\x7f.'", "", id="memo"),  # seven bytes for 32 GiB of pointers
        pytest.param(r"b'\x80\x04' + b']' * (16 << 20) + b'.'", "refused: the pickle has more than .*", id="size"),
    ],
)
def test_pythons_unpickler_takes_memory_by_the_gigabyte_where_ours_does_not(bomb: str, ours: str) -> None:
    """Why this is not a restricted pickle.Unpickler: find_class() excludes code, but does not limit memory."""
    assert _outcome(bomb, _RESTRICTED) == "no memory"
    assert re.fullmatch(ours, _outcome(bomb, _OURS))


def test_nesting_costs_no_stack() -> None:
    """A list in a list, a million deep; the result can be deallocated."""
    bomb = r"b'\x80\x04' + b']' * 1_000_000 + b'a' * 999_999 + b'.'"
    assert _outcome(bomb, _OURS) == ""


def test_every_cut_and_many_flips_are_survived() -> None:
    """The result is a value or PickleError."""
    data = pickle.dumps(PLAIN, 4)
    chance = random.Random(4)
    for at in range(len(data)):
        with pytest.raises(PickleError):
            load_plain(data[:at])
    for _ in range(5000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(data))] = chance.randrange(256)
        try:
            load_plain(bytes(changed))
        except PickleError:
            continue
