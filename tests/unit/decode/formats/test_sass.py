"""Machine code of NVIDIA's devices: the words are ptxas's for sm_70 to sm_100, the texts what nvdisasm 12.8 prints."""

from __future__ import annotations

import struct

import pytest

from pytracer.decode.formats.sass import access_of, is_trap, predicate_valid, still_valid

# Architecture, the two halves of an instruction, its text; kind, bytes, base, uniform register, offset, predicate.
INSTRUCTIONS = [
    (70, 0x00000200020F7381, 0x000EE800001EE300, "LDG.E.S8.SYS R15, [R2+0x2]", ("read", 1, 2, None, 2, 7)),
    (70, 0xFFFFC00002117381, 0x000F2200001EE500, "LDG.E.U16.SYS R17, [R2+-0x40]", ("read", 2, 2, None, -64, 7)),
    (70, 0x0010010D02007386, 0x004FE8000010E100, "STG.E.U8.SYS [R2+0x1001], R13", ("write", 1, 2, None, 4097, 7)),
    (70, 0x0000004208007385, 0x0103E8000010E511, "ST.E.U16.SYS [R8+0x42], R17", ("write", 2, 8, None, 66, 7)),
    (70, 0x00003000020C7381, 0x001EE800001E6D00, "LDG.E.128.CONSTANT.SYS R12, [R2+0x30]", ("read", 16, 2, None, 48, 7)),
    (70, 0x0000002008047980, 0x000EA8000010ED00, "LD.E.128.SYS R4, [R8+0x20]", ("read", 16, 8, None, 32, 7)),
    (70, 0xFFFFFFBC08007385, 0x020FE8000010E917, "ST.E.SYS [R8+-0x44], R23", ("write", 4, 8, None, -68, 7)),
    (70, 0x0002001802007386, 0x004FE8000010EB00, "STG.E.64.SYS [R2+0x200], R24", ("write", 8, 2, None, 512, 7)),
    (
        70,
        0x00008411021173A8,
        0x020EA800001F41FF,
        "ATOMG.E.ADD.STRONG.GPU PT, R17, [R2+0x84], R17",
        ("update", 4, 2, None, 132, 7),
    ),
    (
        70,
        0x0000880C0200798E,
        0x000FE20000114700,
        "RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2+0x88], R12",
        ("update", 4, 2, None, 136, 7),
    ),
    (
        70,
        0x0000A0120813738B,
        0x008EE800001F4113,
        "ATOM.E.CAS.STRONG.GPU PT, R19, [R8+0xa0], R18, R19",
        ("update", 4, 8, None, 160, 7),
    ),
    (
        70,
        0x0000C00E020E73A8,
        0x010F2200001F4DFF,
        "ATOMG.E.ADD.F64.RN.STRONG.GPU PT, R14, [R2+0xc0], R14",
        ("update", 8, 2, None, 192, 7),
    ),
    (
        70,
        0x00000C090200098E,
        0x000FE20000114100,
        "@P0 RED.E.ADD.STRONG.GPU [R2+0xc], R9",
        ("update", 4, 2, None, 12, 0),
    ),
    (80, 0x00000108020D7981, 0x000EA8000C1E1100, "LDG.E.U8 R13, [R2.64+0x1]", ("read", 1, 2, None, 1, 7)),
    (80, 0x0000100808177980, 0x000F68000C101900, "LD.E R23, [R8.64+0x10]", ("read", 4, 8, None, 16, 7)),
    (80, 0x0000600408007985, 0x0041E8000C101D08, "ST.E.128 [R8.64+0x60], R4", ("write", 16, 8, None, 96, 7)),
    (
        80,
        0x000084110810798A,
        0x004EA200081EE1C8,
        "ATOM.E.ADD.STRONG.GPU PT, R16, [R8.64+0x84], R17",
        ("update", 4, 8, None, 132, 7),
    ),
    (
        80,
        0x00009004020673A9,
        0x000EA800001EE506,
        "ATOMG.E.CAS.64.STRONG.GPU PT, R6, [R2+0x90], R4, R6",
        ("update", 8, 2, None, 144, 7),
    ),
    (
        80,
        0x0000A8060200798E,
        0x0045E8000C10E588,
        "RED.E.ADD.64.STRONG.GPU [R2.64+0xa8], R6",
        ("update", 8, 2, None, 168, 7),
    ),
    (
        90,
        0x0000300804107981,
        0x001EE8000C1E9D00,
        "LDG.E.128.CONSTANT R16, desc[UR8][R4.64+0x30]",
        ("read", 16, 4, None, 48, 7),
    ),
    (90, 0x0000060808177980, 0x000F28000C101100, "LD.E.U8 R23, desc[UR8][R8.64+0x6]", ("read", 1, 8, None, 6, 7)),
    (90, 0xFFFFBC1908007985, 0x0201E8000C101908, "ST.E desc[UR8][R8.64+-0x44], R25", ("write", 4, 8, None, -68, 7)),
    (
        90,
        0x0004001004007986,
        0x0083E8000C101D08,
        "STG.E.128 desc[UR8][R4.64+0x400], R16",
        ("write", 16, 4, None, 1024, 7),
    ),
    (
        90,
        0x00008400041979A8,
        0x001EA800081EE1C8,
        "ATOMG.E.ADD.STRONG.GPU PT, R25, desc[UR8][R4.64+0x84], R0",
        ("update", 4, 4, None, 132, 7),
    ),
    (
        90,
        0x00008810040079A6,
        0x000FE2000C10F388,
        "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR8][R4.64+0x88], R16",
        ("update", 4, 4, None, 136, 7),
    ),
    (
        90,
        0x0000A00E080F738B,
        0x010E6800001EE10F,
        "ATOM.E.CAS.STRONG.GPU PT, R15, [R8+0xa0], R14, R15",
        ("update", 4, 8, None, 160, 7),
    ),
    (
        90,
        0x0000A80A0400798E,
        0x0081E8000C10E588,
        "REDG.E.ADD.64.STRONG.GPU desc[UR8][R4.64+0xa8], R10",
        ("update", 8, 4, None, 168, 7),
    ),
    (
        90,
        0x0000C00C040C79A3,
        0x008EE200081EFFC8,
        "ATOMG.E.ADD.F64.RN.STRONG.GPU PT, R12, desc[UR8][R4.64+0xc0], R12",
        ("update", 8, 4, None, 192, 7),
    ),
    (
        90,
        0x00000C030400098E,
        0x000FE2000C10E188,
        "@P0 REDG.E.ADD.STRONG.GPU desc[UR8][R4.64+0xc], R3",
        ("update", 4, 4, None, 12, 0),
    ),
    (100, 0x0000E000FF027B82, 0x000E220000000A00, "LDC.64 R2, c[0x0][0x380]", None),
    (100, 0x0000060804157981, 0x000EA8000C1E1700, "LDG.E.S16 R21, desc[UR8][R4.64+0x6]", ("read", 2, 4, None, 6, 7)),
    (
        100,
        0x0002001A04007986,
        0x004FE8000C101B08,
        "STG.E.64 desc[UR8][R4.64+0x200], R26",
        ("write", 8, 4, None, 512, 7),
    ),
    (100, 0x80008400041979A8, 0x001EA800081EF108, "ATOMG.E.ADD.STRONG.GPU PT, R25, desc[UR8][R4.64+0x84], R0", None),
    (90, 0x00000108040B7981, 0x000EA8000C1E0100, "LDG.E.U8 R11, [R4.64+UR8+0x1]", ("read", 1, 4, 8, 1, 7)),
    (80, 0x0010010D02007986, 0x004FE80008100108, "STG.E.U8 [R2.U32+UR8+0x1001], R13", ("write", 1, 2, 8, 4097, 7)),
    (100, 0x00000108040B7981, 0x000EA8000C1E0100, "LDG.E.U8 R11, [R4.64+UR8+0x1]", None),
    (90, 0x00000108FF0B7981, 0x000EA8000C1E1100, "LDG.E.U8 R11, desc[UR8][RZ.64+0x1]", None),
    (90, 0x00000108040B7981, 0x000EA8000C1E1000, "LDG.???0.U8 R11, desc[UR8][R4.64+0x1]", None),
    (60, 0x0000300804107981, 0x001EE8000C1E9D00, "of no such architecture", None),
    (90, 0x0000300805107981, 0x001EE8000C1E9D00, "an odd pair of registers", None),
    (90, 0x00000A00FF017B82, 0x000FE20000000800, "LDC R1, c[0x0][0x28]", None),
]
LOAD = (0x0000000402087981, 0x000EA2000C1E1D00)  # LDG.E.128 R8, desc[UR4][R2.64], barrier 2
STORE = (0x0000000306007986, 0x000FE2000C101904)  # STG.E desc[UR4][R6.64], R3
GUARDED = (0x0000000A0416E981, 0x000EA2000C1E1900)  # @!P6 LDG.E R22, desc[UR10][R4.64], barrier 2
FADD = (0x0000000908097221, 0x004FC80000000000)  # FADD R9, R8, R9, waits for barrier 2
MOVE = (0x0000000400037C02, 0x000FE20008000F00)  # MOV R3, UR4
COMPARE = (0x000000100700720C, 0x000FE40003FC6270)  # ISETP.GE.AND P6, PT, R7, R16, PT
EXIT, NOP = (0x000000000000794D, 0x000FEA0003800000), (0x0000000000007918, 0x000FC00000000000)
SELF = (0xFFFFFFFC00FC7947, 0x000FC0000383FFFF)  # BRA to itself
BACK = (0xFFFFFFFC00807947, 0x000FEA000383FFFF)  # BRA -0x200 + 0x10
CALL, HGMMA = (0x0000000000147944, 0x001FEA0003C00000), (0x00000000002079F0, 0x000FE20000000000)


def packed(*words: tuple[int, int]) -> bytes:
    """Code."""
    return b"".join(struct.pack("<QQ", *item) for item in words)


@pytest.mark.parametrize(("architecture", "low", "high", "text", "expected"), INSTRUCTIONS)
def test_accesses_are_those_that_nvdisasm_prints(
    architecture: int, low: int, high: int, text: str, expected: tuple[object, ...] | None
) -> None:
    """And what is not in the tables is none."""
    access = access_of(packed((low, high)), architecture)
    if access is None:
        assert expected is None, text
    else:
        found = (access.kind, access.nbytes, access.base, access.uniform, access.offset, access.predicate)
        assert found == expected, text
        assert access.base_bits == (32 if ".U32" in text else 64)


def test_code_that_is_cut_off_has_no_access() -> None:
    """Nor is it a trap."""
    assert access_of(packed(LOAD)[:15], 90) is None
    assert not is_trap(b"")


def test_only_bpt_trap_is_a_trap() -> None:
    """BPT.INT and NOP are none."""
    assert is_trap(packed((0x000000040000795C, 0x000FE20000300000)))
    assert not is_trap(packed((0x000000040000795C, 0x000FEA0000400000)))
    assert not is_trap(packed(NOP))


def valid(stop: int, *words: tuple[int, int], called: bool = False, divergent: bool = False) -> bool:
    """Whether the registers of the first instruction are still valid at the number `stop`."""
    code = packed(*words)
    access = access_of(code, 90)
    assert access is not None
    return still_valid(access, code, 0, stop * 16, 90, called=called, divergent=divergent)


def test_registers_are_valid_where_a_load_waits() -> None:
    """Also in a loop: nothing passes the barrier of a load that failed."""
    assert valid(1, LOAD, FADD, SELF)
    assert valid(2, LOAD, NOP, FADD, EXIT, BACK)
    assert not valid(3, LOAD, NOP, FADD, NOP, EXIT, BACK)  # it has passed the barrier: another round


def test_registers_of_a_store_are_valid_only_without_a_way_back() -> None:
    """Stores do not wait."""
    assert valid(1, STORE, EXIT, SELF)
    assert not valid(1, STORE, EXIT, BACK)


@pytest.mark.parametrize("between", [MOVE, HGMMA, CALL, SELF, (0, 0)])
def test_registers_are_not_valid_behind_what_may_have_changed_them(between: tuple[int, int]) -> None:
    """A write to one of the pair, unknown instructions, jumps."""
    assert valid(2, LOAD, NOP, FADD, EXIT)
    assert not valid(2, LOAD, between, FADD, EXIT)


def test_a_load_into_its_own_address_leaves_none() -> None:
    """A failed load writes its destination nevertheless."""
    low, high = LOAD
    assert not valid(1, (low & ~0xFF0000 | 0x30000, high), FADD, EXIT)


def test_functions_that_are_called_again_and_threads_elsewhere() -> None:
    """A recursive call, and a jump of other threads into the middle."""
    assert not valid(1, STORE, EXIT, CALL, called=True) and valid(1, STORE, EXIT, CALL)
    jump = (0x0000000000007947, 0x000FEA0003800000)  # BRA to the next instruction
    code = packed(jump, jump, LOAD, FADD, EXIT)
    access = access_of(packed(LOAD), 90)
    assert access is not None
    assert still_valid(access, code, 32, 48, 90, called=False, divergent=True)
    into = (0x0000000000207947, 0x000FEA0003800000)  # BRA +0x80 / 4: to the one that waits
    code = packed((into[0] & ~0xFF0000 | 0x080000, into[1]), NOP, LOAD, FADD, EXIT)
    assert not still_valid(access, code, 32, 48, 90, called=False, divergent=True)
    assert still_valid(access, code, 32, 48, 90, called=False, divergent=False)


def test_places_outside_of_the_function_are_not_valid() -> None:
    """Before the access, far behind it, or past the end."""
    words = [LOAD, *[NOP] * 100]
    assert valid(60, *words) and not valid(0, *words) and not valid(70, *words) and not valid(200, *words)


def test_a_predicate_is_valid_until_it_is_written() -> None:
    """Triton's masks are compared again at once."""
    access = access_of(packed(GUARDED), 90)
    assert access is not None and (access.predicate, access.negated) == (6, True)
    assert predicate_valid(access, packed(GUARDED, NOP, FADD), 0, 32)
    assert not predicate_valid(access, packed(GUARDED, COMPARE, FADD), 0, 32)
    assert not predicate_valid(access, packed(GUARDED, HGMMA, FADD), 0, 32)
