"""illegal-instruction: the processor met an instruction that it does not know, or that is meant to stop it.

What: SIGILL. Told apart are a trap that the compiler put there (ud2, ud1), an instruction set that the processor
lacks (AVX-512, AMX, AVX2), and bytes that are no code of any library: a jump into data or the middle of an
instruction.

Why it happens: native code reached what it calls unreachable, or a check in it failed (__builtin_trap, a missing
return, Rust and UBSan checks); a library was built for another processor (-march=native on the build machine); a
function pointer or return address was overwritten.

What to do: for a trap, look at the function and build it with -O0 -fsanitize=undefined. For an instruction set, take
a build for this processor, or limit it: ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA.

How it can be wrong: a jump into the middle of an instruction can look like an instruction set that is missing.
Without capstone only the common prefixes are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.memory_fault import FaultRule
from pytracer.analyze.evidence.native_stack import code_words, image_at
from pytracer.analyze.evidence.phrases import collective_evidence, in_function, missing_operands, python_evidence
from pytracer.analyze.platform.signals import SIGILL
from pytracer.analyze.view import Draft, Outcome, ProcessView, draft, not_found, subject_words
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


@dataclass(frozen=True)
class _Reading:
    """What the bytes at the program counter are."""

    what: str
    confidence: str
    bytes_words: str | None
    advice: str


class IllegalInstruction(FaultRule):
    """Fires for SIGILL from the processor."""

    id = "illegal-instruction"
    needs = ("crash",)
    signals = (SIGILL,)

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """See FaultRule."""
        view = views[0]
        reading = _read(view)
        signal, crash = view.signal, view.crash
        return draft(
            self.id,
            "illegal-instruction",
            reading.confidence,
            views,
            f"{subject_words(views)} {reading.what}{in_function(view)}.",
            [
                Evidence(f"SIGILL ({signal.code if signal else '?'}) in {code_words(crash, crash.pc)}", "signal")
                if crash
                else None,
                reading.bytes_words,
                python_evidence(view),
                collective_evidence(views),
            ],
            reading.advice,
            [missing_operands(view)],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """See FaultRule."""
        return not_found("nothing died of SIGILL")


def _read(view: ProcessView) -> _Reading:
    crash = view.crash
    code = crash.code_bytes if crash else b""
    shown = f"the bytes there are {code[:8].hex(' ')}" if code else None
    if not view.process.snapshot.arch.startswith("x86"):
        return _Reading("executed an illegal instruction", "likely", shown, _BUILD_ADVICE)
    if code[:2] in _TRAPS:
        name = _TRAPS[code[:2]]
        what = f"ran into a trap that was compiled in ({name})"
        return _Reading(what, "certain", f"the instruction is {name}: {code[:2].hex(' ')}", _TRAP_ADVICE)
    text = view.instruction.text if view.instruction else None
    extension = _extension(code, text)
    if extension is not None:
        decoded = f"the instruction is {text}" if text else shown
        what = f"executed an instruction that this processor lacks ({extension})"
        return _Reading(what, "likely", decoded, _BUILD_ADVICE)
    if crash is not None and image_at(crash, crash.pc) is None and crash.mappings:
        return _Reading("executed bytes that are no library's code", "likely", shown, _DATA_ADVICE)
    decoded = f"the instruction is {text}" if text else shown
    return _Reading("executed an illegal instruction", "likely", decoded, _BUILD_ADVICE)


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
