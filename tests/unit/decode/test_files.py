"""Untrusted paths: regular files are read, all others are not even opened."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from pytracer.decode.files import Window, open_regular, read_regular


def test_regular_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    """One byte more than allowed is refused before anything is read."""
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, at most 4 are read"):
        read_regular(path, 4)


@pytest.mark.parametrize("follow", [True, False])
def test_whatever_is_no_regular_file_is_refused_at_once(tmp_path: Path, follow: bool) -> None:
    """A pipe without a writer, devices, a socket, a directory, a name with a NUL."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        began = time.monotonic()
        for name in (tmp_path / "pipe", tmp_path / "socket", "/dev/zero", "/dev/tty", tmp_path, "a\0b"):
            with pytest.raises(OSError, match="not a regular file|is a directory|impossible"):
                read_regular(name, 100, follow=follow)
        assert time.monotonic() - began < 5


def test_link_is_followed_only_when_asked(tmp_path: Path) -> None:
    """Another user's link may point to a private file."""
    (tmp_path / "f").write_bytes(b"private")
    (tmp_path / "link").symlink_to("f")
    with pytest.raises(OSError, match="link"):
        read_regular(tmp_path / "link", 100)
    assert read_regular(tmp_path / "link", 100, follow=True) == b"private"
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "zero", 100, follow=True)


def test_files_of_proc_give_what_their_size_says() -> None:
    """Nothing: some of them never end."""
    assert read_regular("/proc/self/environ", 100) == b""
    with pytest.raises(OSError, match="at most|denied|No such"):
        read_regular("/proc/kcore", 1 << 30)


def test_descriptor_does_not_survive_exec(tmp_path: Path) -> None:
    """Helpers are started while files are open."""
    (tmp_path / "f").write_bytes(b"1")
    fd = open_regular(tmp_path / "f")
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_window_reads_nothing_outside(tmp_path: Path) -> None:
    """Neither before nor behind, nor when the file is cut off meanwhile."""
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    fd = open_regular(path)
    for window in (Window(fd), Window(b"0123456789")):
        part = window.part(2, 4)
        assert (part.read(0, 100), part.read(3, 1), part.read(4, 1), part.read(-1, 5)) == (b"2345", b"5", b"", b"")
        assert part.part(3, 1 << 64).read(0, 9) == b"5"
        assert part.part(9, 1).nbytes == part.part(-1, 1).nbytes == 0
    os.truncate(path, 3)
    assert Window(fd, 0, 10).read(0, 10) == b"012"
    os.close(fd)
