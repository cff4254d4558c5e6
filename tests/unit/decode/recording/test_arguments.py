"""The section ARGUMENTS: tensors of native code, of a valid recording and of damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.snapshot import Argument
from tests.support.synth import Box
from tests.support.synth_names import add_arguments

BASE = 0x7F00_0000_0000
FLOAT32, INT64, UNKNOWN = 6, 4, 200


def arguments_of(tmp_path: Path, box: Box) -> tuple[Argument, ...]:
    path = tmp_path / "a.blackbox"

    path.write_bytes(box.content())
    crash = read_box(path).crash
    assert crash is not None
    return crash.arguments


def crashed() -> Box:
    return Box(pid=101).crash(addr=0, native=[("/gone/x.so", 0x1100)])


def test_shape_type_and_values_are_read(tmp_path: Path) -> None:
    """A table of floats, which have no extremes, and an index."""
    table, index = arguments_of(
        tmp_path, add_arguments(crashed(), [(BASE, FLOAT32, (10, 4), None), (BASE + 640, INT64, (3,), (-1, 9))])
    )
    assert (table.base, table.sizes, table.dtype, table.device, table.elements) == (BASE, (10, 4), "float32", "cpu", 40)
    assert (table.minimum, table.maximum, table.frame, table.how) == (None, None, 0, "reference")
    assert (index.dtype, index.minimum, index.maximum, index.is_integer) == ("int64", -1, 9, True)


def test_nans_are_counted_where_they_were_looked_at(tmp_path: Path) -> None:
    """A recording of a version before has none."""
    described = [(BASE, FLOAT32, (3,), (2, 0)), (BASE, FLOAT32, (4,), (0, 1)), (BASE, FLOAT32, (5,), None)]
    found = arguments_of(tmp_path, add_arguments(crashed(), described))
    assert [(item.nans, item.infinite) for item in found] == [(2, False), (0, True), (None, None)]
    assert {(item.minimum, item.maximum) for item in found} == {(None, None)}


def test_types_of_newer_versions_are_unknown(tmp_path: Path) -> None:
    """The rest of the tensor is known."""
    (found,) = arguments_of(tmp_path, add_arguments(crashed(), [(BASE, UNKNOWN, (2,), None)]))
    assert (found.dtype, found.sizes) == (None, (2,))


def test_more_entries_announced_than_written_is_damage_and_no_failure(tmp_path: Path) -> None:
    """A count from a damaged header."""
    box = add_arguments(crashed(), [(BASE, FLOAT32, (2,), None)])
    head = bytearray(box.crash_regions[16][1])
    struct.pack_into("<I", head, 948, 0xFFFFFFFF)
    box.crash_regions[16] = (1024, bytes(head))
    assert len(arguments_of(tmp_path, box)) == 1


def test_a_recording_of_minor_version_2_has_none(tmp_path: Path) -> None:
    """The section did not exist."""
    assert arguments_of(tmp_path, crashed()) == ()
