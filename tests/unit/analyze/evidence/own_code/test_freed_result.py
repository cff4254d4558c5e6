"""A copy of Python's that is freed by ctypes is named with the restype that made it one; look-alikes are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, died, image, summary, verdict

LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
FFI = ("/usr/lib/libffi.so.8", "ffi_call")
CTYPES = ("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "_ctypes_callproc")
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
FREE = [(LIBC, "malloc_printerr"), (LIBC, "munmap_chunk"), (LIBC, "__libc_free")]
ABORT: dict[str, Any] = {
    "signal": 6, "code": -6, "sender_pid": 101, "abort_text": "munmap_chunk(): invalid pointer\n",
    "stack_of": [*FREE, FFI, CTYPES, PYTHON],
}  # fmt: skip
KEPT = """import ctypes
from ctypes import c_char_p, c_void_p

lib = ctypes.CDLL("libwords.so")
{declared}


class Words:
    def __init__(self):
        self.kept = []

    def add(self, text):
        word = {made}
        self.kept.append((text, word))

    def close(self):
        for _, word in self.kept:
            lib.{release}(word)


def main():
    words = Words()
    words.add("x")
    words.close()
"""
MADE = "lib.make_word(text.encode())"
DECLARED = "lib.make_word.restype = {}"
LINE = 18


def freed(
    run: Path, declared: str, made: str = MADE, release: str = "word_free", source: str = "", **how: Any
) -> Report:
    """`source`: of the library."""
    script, library, native = run / "train.py", run / "libwords.so", run / "words.c"
    script.write_text(KEPT.format(declared=declared, made=made, release=release), encoding="utf-8")
    native.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    for file in (script, library, native):
        os.utime(file, (0, 0))  # before the recorded process began
    line = LINE + declared.count("\n")
    frames = [("Words.close", str(script), line), ("main", str(script), line + 6)]
    return died(run, python=frames, images=(image(str(library)),), **{**ABORT, **how})


@pytest.mark.parametrize(
    ("restype", "kind"),
    [("ctypes.c_char_p", "bytes"), ("c_char_p", "bytes"), ("ctypes.c_wchar_p", "str")],
)
def test_text_that_ctypes_copied_is_no_block_of_malloc(restype: str, kind: str, run: Path) -> None:
    """It was put into a list of tuples; the heap is whole, and is not said to be damaged."""
    report = freed(run, DECLARED.format(restype))
    name = restype.rpartition(".")[2]
    assert (
        f"aborted because free() was given an address that malloc() never gave out, at train.py:{LINE} in Words.close: "
        f"`word`, which line {LINE} passes to word_free(), is a {kind} object of Python: by restype {name} (line 5) "
        "ctypes copies the text that make_word() (line 13) returns, and drops its address." in summary(report)
    )
    assert "damaged" not in summary(report)
    assert advice(report).startswith("Set restype of make_word to ctypes.c_void_p at line 5, read the text by")
    assert "what make_word() allocated is never freed" in advice(report)


def test_restype_of_several_at_once_and_of_a_variable_counts(run: Path) -> None:
    declared = "lib.make_word.argtypes, lib.make_word.restype = [c_char_p], c_char_p"
    assert "by restype c_char_p (line 5)" in summary(freed(run, declared))
    declared = "make = lib.make_word; make.restype = c_char_p"
    assert "by restype c_char_p (line 5)" in summary(freed(run, declared))


@pytest.mark.parametrize(
    "declared",
    [
        DECLARED.format("c_void_p"),  # the address itself: what is wrong is another thing
        "lib.version.restype = c_char_p",  # of another function
        "lib.make_word.restype = c_char_p\nlib.make_word.restype = c_void_p",  # which one was it?
        "",
    ],
)
def test_what_is_not_known_to_be_a_copy_is_not_said_to_be_one(declared: str, run: Path) -> None:
    report = freed(run, declared)
    assert "object of Python" not in summary(report) and "found its heap damaged" in summary(report)


def test_function_that_frees_its_own_memory_is_not_said_to_free_the_text(run: Path) -> None:
    """By its source, whatever it is called; one whose source is not here frees it where its name says so."""
    declared = DECLARED.format("c_char_p")
    own = (
        "char *make_word(const char *s) {\n    return strdup(s);\n}\nvoid word_free(char *w) {\n    free(buffer);\n}\n"
    )
    assert "object of Python" not in summary(freed(run, declared, source=own))
    own = own.replace("free(buffer)", "free((void *)w)")
    assert "object of Python" in summary(freed(run, declared, source=own))
    for name, frees in (("free_string", True), ("wordsRelease", True), ("print_word", False), ("release_notes", False)):
        assert ("object of Python" in summary(freed(run, declared, release=name))) == frees, name


def test_copy_of_string_at_is_named_with_the_address_that_it_was_given(run: Path) -> None:
    report = freed(run, DECLARED.format("c_void_p"), made="ctypes.string_at(address)")
    assert "is a bytes object of Python, a copy that line 13 makes" in summary(report)
    assert advice(report).startswith("Pass the address itself, `address`, to word_free()")


def test_double_free_is_none_of_it(run: Path) -> None:
    """The allocator found the block in its own list: it was one."""
    report = freed(run, DECLARED.format("c_char_p"), abort_text="free(): double free detected in tcache 2\n")
    assert "object of Python" not in summary(report)


def test_extension_that_frees_below_the_line_is_none_of_it(run: Path) -> None:
    report = freed(run, DECLARED.format("c_char_p"), stack_of=[*FREE, (s.VICTIM, "close"), PYTHON])
    assert "object of Python" not in summary(report)


@pytest.mark.parametrize(("number", "cut"), [(0x474D7240, True), (0x5581_474D_7240, False)])
def test_number_that_is_half_an_address_is_said_to_be_cut(number: int, cut: bool, run: Path) -> None:
    """ctypes takes an address for a C int where no restype is set; the look-alike has all of its bits."""
    frame = PythonFrame("Words.close", str(run / "train.py"), LINE)
    how: dict[str, Any] = {
        "signal": 11, "code": 1, "addr": number - 8, "abort_text": None, "registers": {"rdi": number},
        "stack_of": [FREE[-1], FFI, CTYPES, PYTHON], "numbers": (HeldNumber("word", number, frame, 0),),
    }  # fmt: skip
    report = freed(run, "", **how)
    said = f"free() was given the number {number} of `word`, which line {LINE} passes: the lower 32 bits of the address"
    assert (said in summary(report)) == cut
    assert advice(report).startswith("Set `lib.make_word.restype = ctypes.c_void_p` before line 13") == cut
    assert verdict(report) == ("heap-corruption", "likely")
