"""illegal-instruction: the processor met an instruction that it does not know, or that is meant to stop it.

What: SIGILL. The rule distinguishes a trap that the compiler inserted (ud2, ud1), an instruction set that the processor
lacks (AVX-512, AMX, AVX2), and bytes outside any library's code: a jump into data or the middle of an
instruction.

Why it happens: native code reached what it calls unreachable, or a check in it failed (__builtin_trap, a missing
return, Rust and UBSan checks); a library was built for another processor (-march=native on the build machine); a
function pointer or return address was overwritten.

What to do: for a trap, look at the function and build it with -O0 -fsanitize=undefined. For an instruction set, take
a build for this processor, or limit it: ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA.

How it can be wrong: a jump into the middle of an instruction can look like an instruction set that is missing.
Without capstone only the common prefixes are recognized.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.evidence.native.native_stack import code_words, image_at
from pytracer.analyze.evidence.phrases import collective_evidence, in_function, missing_operands, python_evidence
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.aarch64 import extension_of
from pytracer.analyze.platform.signals import SIGILL
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import FaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Crash
from pytracer.report.job import Evidence

_TRAPS = {b"\x0f\x0b": "ud2", b"\x0f\xb9": "ud1", b"\x0f\xff": "ud0"}
_AVX512, _VEX3, _VEX2 = 0x62, 0xC4, 0xC5
# VEX.0F38 opcodes of tile instructions; capstone 5 does not know them.
_MAP_BITS, _MAP_0F38, _TILES = 0x1F, 0x02, (0x49, 0x4B, 0x5C, 0x5E, 0x6C)
_TRAP_ADVICE = (
    "Look at the named function: it reached what its compiler or author calls impossible (__builtin_unreachable, a "
    "missing return, a failed check). Building it with -fsanitize=undefined says which."
)
_BUILD_ADVICE = (
    "Use a build of that library for this processor. ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA limit what torch "
    "itself chooses."
)
_DATA_ADVICE = (
    "Either code was generated wrongly at run time (a JIT compiler), or a function pointer, a vtable or a return "
    "address was overwritten: AddressSanitizer names the moment."
)


class _Reading(msgspec.Struct, frozen=True):
    """What the bytes at the program counter are: a trap, of an instruction set that is missing, or no code at all."""

    trap: str | None = None
    extension: str | None = None
    no_code: bool = False


class IllegalInstruction(FaultRule[_Reading]):
    """Fires for SIGILL from the processor."""

    id = "illegal-instruction"
    needs = ("crash",)
    signals = (SIGILL,)

    def judge(self, view: ProcessView) -> Judgement[_Reading] | None:
        """See FaultRule."""
        reading = _read(view)
        return Judgement("illegal-instruction", "certain" if reading.trap else "likely", (view,), reading)

    def describe(self, job: JobView, judgement: Judgement[_Reading]) -> Description:
        """See FaultRule."""
        view, reading = judgement.views[0], judgement.found
        signal, crash = view.signal, view.crash
        return Description(
            f"{introduction(judgement.views)} {_what(reading)}{in_function(view)}.",
            [
                Evidence(
                    "signal",
                    f"SIGILL ({signal.code if signal else '?'}) in {code_words(crash, crash.pc)}",
                    signal="SIGILL",
                    code=signal.code if signal else None,
                    addr=hex_addr(crash.pc),
                )
                if crash
                else None,
                _bytes(view, reading),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            _TRAP_ADVICE if reading.trap else _DATA_ADVICE if reading.no_code else _BUILD_ADVICE,
            [missing_operands(view)],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        return not_found("nothing died of SIGILL")


def _read(view: ProcessView) -> _Reading:
    crash = view.crash
    code = crash.code_bytes if crash else b""
    arch = view.process.snapshot.arch
    if arch == "aarch64":
        extension = extension_of(view.instruction.text) if view.instruction is not None else None
        return _Reading(extension=extension) if extension is not None else _Reading(no_code=_is_no_code(crash))
    if not arch.startswith("x86"):
        return _Reading()
    if code[:2] in _TRAPS:
        return _Reading(trap=_TRAPS[code[:2]])
    extension = _extension(code, view.instruction.text if view.instruction else None)
    if extension is not None:
        return _Reading(extension=extension)
    return _Reading(no_code=_is_no_code(crash))


def _is_no_code(crash: Crash | None) -> bool:
    return crash is not None and image_at(crash, crash.pc) is None and bool(crash.mappings)


def _what(reading: _Reading) -> str:
    if reading.trap is not None:
        return f"ran into a trap that was compiled in ({reading.trap})"
    if reading.extension is not None:
        return f"executed an instruction that this processor lacks ({reading.extension})"
    return "executed bytes that are no library's code" if reading.no_code else "executed an illegal instruction"


def _bytes(view: ProcessView, reading: _Reading) -> Evidence | None:
    code = view.crash.code_bytes if view.crash else b""
    if reading.trap is not None:
        words = f"the instruction is {reading.trap}: {code[:2].hex(' ')}"
        return Evidence("instruction", words, instruction=reading.trap, text=code[:2].hex(" "))
    if view.instruction is not None and view.instruction.text and not reading.no_code:
        text = view.instruction.text
        return Evidence("instruction", f"the instruction is {text}", instruction=text)
    found = code[:8].hex(" ")
    return Evidence("instruction", f"the bytes there are {found}", text=found) if code else None


def _extension(code: bytes, text: str | None) -> str | None:
    """The instruction set that the first instruction belongs to, by prefix and name."""
    mnemonic = (text or "").split(" ", 1)[0]
    first = code[0] if code else 0
    if first == _VEX3 and len(code) > 3 and code[1] & _MAP_BITS == _MAP_0F38 and code[3] in _TILES:
        return "AMX"
    if first == _AVX512:
        return "AVX-512"
    if first in (_VEX2, _VEX3):
        return "AVX-512 masks" if mnemonic.startswith("k") else "AVX, AVX2 or FMA"
    if mnemonic in ("popcnt", "crc32", "pclmulqdq", "movbe", "rdrand", "rdseed", "adcx", "adox"):
        return mnemonic
    return "AES or SHA" if mnemonic.startswith(("aes", "sha1", "sha256")) else None
