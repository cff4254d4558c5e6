"""Decoding the faulting instruction."""

from __future__ import annotations

import pytest

from pytracer.analyze.platform.instruction import decode_instruction, is_canonical, page_fault_access, signed
from tests.conditions import needs_capstone

pytestmark = needs_capstone


@pytest.mark.parametrize(
    ("code", "registers", "text", "access", "size", "addr"),
    [
        ("488b87b0000000", {"rdi": 0x281}, "mov rax, qword ptr [rdi + 0xb0]", "read", 8, 0x331),
        ("8907", {"rdi": 0x1000}, "mov dword ptr [rdi], eax", "write", 4, 0x1000),
        ("f30f1004b8", {"rax": 0x7000, "rdi": 2}, "movss xmm0, dword ptr [rax + rdi*4]", "read", 4, 0x7008),
        ("488b0510000000", {}, "mov rax, qword ptr [rip + 0x10]", "read", 8, 0x4000 + 7 + 0x10),
        ("c3", {"rsp": 0x9000}, "ret", "read", 8, 0x9000),
        ("55", {"rsp": 0x9000}, "push rbp", "write", 8, 0x8FF8),
    ],
)
def test_operands_give_the_address(
    code: str, registers: dict[str, int], text: str, access: str, size: int, addr: int
) -> None:
    """Base, index, scale, displacement; rip-relative; implicit stack accesses."""
    found = decode_instruction(bytes.fromhex(code), registers, 0x4000, addr)
    assert found is not None
    assert (found.text, found.access, found.size, found.addr) == (text, access, size, addr)


def test_missing_register_leaves_the_address_unknown() -> None:
    """Nothing is guessed."""
    found = decode_instruction(bytes.fromhex("8907"), {}, 0x4000, None)
    assert found is not None and found.addr is None


def test_rubbish_and_no_bytes_give_nothing() -> None:
    """Code that could not be read, or is none."""
    assert decode_instruction(b"", {}, 0, None) is None
    assert decode_instruction(b"\x06", {}, 0, None) is None


def test_page_fault_error_code_tells_the_access() -> None:
    """Only for page faults."""
    assert [page_fault_access(14, code) for code in (4, 6, 20)] == ["read", "write", "execute"]
    assert page_fault_access(13, 6) is None and page_fault_access(14, None) is None


def test_canonical_addresses() -> None:
    """Both halves, and the hole between them."""
    assert is_canonical(0x7FFF_FFFF_FFFF) and is_canonical(0xFFFF_8000_0000_0000)
    assert not is_canonical(0x8000_0000_0000) and not is_canonical(0xDEAD_BEEF_0000_0000)


@pytest.mark.parametrize(
    ("code", "addr", "index"),
    [
        ("c4a25d923ca7", 0x7000 - 8 * (1 << 30), -(1 << 31)),
        ("c4a25d923ca7", 0x7000 + 4 * 99, 99),
        ("c4a25d927ca708", 0x7008 + 4 * 99, 99),
        ("c4a25d923ca7", 0x7000 + 4 * 99 + 2, None),
    ],
    ids=["before", "behind", "with a displacement", "no element"],
)
def test_index_of_a_gather_follows_from_the_address(code: str, addr: int, index: int | None) -> None:
    """Vector registers are not recorded; an address between two elements shows no index."""
    found = decode_instruction(bytes.fromhex(code), {"rdi": 0x7000}, 0x4000, addr % (1 << 64))
    assert found is not None and found.is_lane == (index is not None)
    assert (signed(found.index_value) if found.index_value is not None else None) == index
    assert found.addr == (addr % (1 << 64) if index is not None else None)
    assert "ymm12 =" not in found.words
