"""Program counters to images, where the loader's own list was overwritten together with the heap."""

from __future__ import annotations

from pytracer.decode.recording.crash_images import UNREADABLE, Places, with_names
from pytracer.decode.types.snapshot import LoadedImage, Mapping

DAMAGED = LoadedImage(UNREADABLE, 0x7F00_0000, 0x7F00_4010, 0x3F40_C0C1_3F10_9091, None)
WHOLE = LoadedImage("/lib/libffi.so.8", 0x7F10_0000, 0x7F10_8000, 0x7F10_0000, "ab")
MAPS = (
    Mapping(0x7F00_0000, 0x7F00_1000, "r--p", 0, "/tmp/libdecoder.so"),
    Mapping(0x7F00_1000, 0x7F00_2000, "r-xp", 0x1000, "/tmp/libdecoder.so"),
)


def test_an_image_whose_name_was_overwritten_is_found_in_the_memory_map() -> None:
    named = with_names((DAMAGED, WHOLE), MAPS)
    assert named == (WHOLE,)
    frame = Places(named, MAPS).frame(0x7F00_1127, "exact")
    assert (frame.image, frame.offset, frame.offset_is_file) == ("/tmp/libdecoder.so", 0x1127, True)


def test_it_is_kept_where_the_map_has_no_file_there() -> None:
    """Nothing better is known, and what generated code calls itself is no file."""
    anonymous = (Mapping(0x7F00_0000, 0x7F00_4000, "r-xp", 0, "[anon:jit]"),)
    assert with_names((DAMAGED, WHOLE), ()) == (DAMAGED, WHOLE)
    assert with_names((DAMAGED,), anonymous) == (DAMAGED,)


def test_library_that_was_loaded_by_a_relative_path_has_the_whole_one_of_the_map() -> None:
    """By that its symbols are found; a file that was replaced, or an image at another place, keeps its name."""
    relative = LoadedImage("./libdecoder.so", 0x7F00_0000, 0x7F00_4000, 0x7F00_0000, "cd")
    (named,) = with_names((relative,), MAPS)
    assert (named.path, named.build_id) == ("/tmp/libdecoder.so", "cd")
    deleted = (Mapping(0x7F00_0000, 0x7F00_1000, "r--p", 0, "/tmp/libdecoder.so (deleted)"),)
    vdso = LoadedImage("linux-vdso.so.1", 0x7FFF_0000, 0x7FFF_1000, 0x7FFF_0000, None)
    assert with_names((relative,), deleted) == (relative,)
    assert with_names((relative, vdso), MAPS[1:]) == (relative, vdso)
