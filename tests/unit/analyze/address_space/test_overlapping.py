"""Several living tensors of one address: memory of others that was unmapped and mapped anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box
from tests.support.synth_external import foreign, slot
from tests.support.synth_names import add_arguments

NUMPY, FLOAT = 18, 6
BASE, LATER = 0x7F00_0010_0000, 0x7F00_0010_4000
WHOLE = (256, 64)  # float32: 65536 bytes, the whole first storage
MAPS = [(0x5555_0000_0000, 0x5555_0000_1000, "r-xp", 0, "/bin/x")]


def place(tmp_path: Path, *slots: bytes, given: tuple[tuple[int, tuple[int, ...]], ...]) -> Place:
    """What the address is to a call that was given these tensors, each (base, sizes)."""
    box = foreign(Box(), *slots).at(500).crash(addr=LATER + 64, mappings=MAPS)
    add_arguments(box, [(base, FLOAT, sizes, None) for base, sizes in given])
    return AddressSpace(read_box(box.write(tmp_path / "node0.101.blackbox"))).describe(LATER + 64)


@pytest.mark.parametrize(
    ("given", "base"),
    [(((BASE, WHOLE),), BASE), (((BASE, (64,)),), BASE), (((LATER, (16, 16)),), LATER)],
)
def test_tensor_of_the_call_is_the_one_that_was_read(
    tmp_path: Path, given: tuple[tuple[int, tuple[int, ...]], ...], base: int
) -> None:
    """The later tensor lies inside of the earlier one's addresses; both live."""
    found = place(tmp_path, slot(BASE, 65536, NUMPY, number=1), slot(LATER, 4096, NUMPY, number=2), given=given)
    assert found.storage is not None and (found.storage.base, found.rivals) == (base, ())


def test_size_tells_apart_what_begins_at_one_address(tmp_path: Path) -> None:
    """The operator was given 65536 bytes: the other tensor of the address is smaller."""
    found = place(
        tmp_path, slot(BASE, 65536, NUMPY, number=1), slot(BASE, 32768, NUMPY, number=2), given=((BASE, WHOLE),)
    )
    assert found.storage is not None and (found.storage.nbytes, found.rivals) == (65536, ())


def test_nothing_tells_equal_ones_apart(tmp_path: Path) -> None:
    """The same address and the same size: one of two."""
    found = place(
        tmp_path, slot(BASE, 65536, NUMPY, number=1), slot(BASE, 65536, NUMPY, number=2), given=((BASE, WHOLE),)
    )
    assert (len(found.rivals), found.name) == (1, "one of 2 tensors")


def test_a_single_living_one_has_no_rival(tmp_path: Path) -> None:
    """Another tensor of the address has ended."""
    found = place(tmp_path, slot(BASE, 65536, NUMPY, "freed", number=1), slot(BASE, 65536, NUMPY, number=2), given=())
    assert (found.kind, found.rivals, found.name) == ("in-storage", (), None)
