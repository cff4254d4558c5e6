"""What differs between processors: csrc/crashsafe/platform."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from tests.conditions import needs_core

pytestmark = needs_core

NONE = (1 << 64) - 1
FPSIMD = struct.pack("<II", 0x46508001, 528).ljust(528, b"\0")
END = struct.pack("<II", 0, 0)


def esr(value: int) -> bytes:
    return struct.pack("<IIQ", 0x45535201, 16, value)


@pytest.fixture(scope="module")
def platform(built: Path) -> ctypes.CDLL:
    """The functions of crashsafe/platform."""
    library = ctypes.CDLL(str(built / "libpytracer_testing.so"))
    library.testing_syndrome.restype = library.testing_return_address.restype = ctypes.c_uint64
    return library


@pytest.mark.parametrize(
    ("records", "syndrome"),
    [
        (FPSIMD + esr(0x92000046) + END, 0x92000046),
        (esr(0x92000006) + FPSIMD + END, 0x92000006),
        (FPSIMD + END + esr(0x92000046), NONE),
        (END, NONE),
        (b"", NONE),
        (FPSIMD + esr(0x92000046)[:12], NONE),
        (struct.pack("<II", 0x46508001, 0) + esr(1), NONE),
        (struct.pack("<II", 0x46508001, 0xFFFFFFF0) + esr(1), NONE),
    ],
    ids=["behind", "before", "after-the-end", "none", "empty", "cut", "size-of-zero", "size-beyond"],
)
def test_the_syndrome_is_found_among_the_records(platform: ctypes.CDLL, records: bytes, syndrome: int) -> None:
    """Wherever the kernel puts it; a list without an end, or with wrong sizes, is left in time."""
    assert platform.testing_syndrome(records, len(records)) == syndrome


def test_a_signature_is_removed_from_a_return_address(platform: ctypes.CDLL) -> None:
    """Pointer authentication, on processors that have it; elsewhere the address is the same with and without."""
    address = ctypes.cast(platform.testing_syndrome, ctypes.c_void_p).value
    assert platform.testing_return_address(0) == address
