"""A copy of an element of a C++ container, by an index that nothing checks, which asked for absurd memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import copied_element as module
from pytracer.report.job import NativeFrame
from tests.support.native_views import native_view

SOURCE = """\
struct Decoder { std::vector<std::string> labels; int blank; };
extern "C" Decoder *decoder_new(const char **labels, int n)
{
    Decoder *d = new Decoder;
    for (int i = 0; i < n; i++)
        d->labels.push_back(labels[i]);
    return d;
}
extern "C" int decoder_run(const Decoder *d, const int *best, int frames, char *out)
{
    std::string text;
    for (int t = 0; t < frames; t++) {
        int id = best[t];
        TEST
        text += d->labels[id];
    }
    return copy(out, text);
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(handle, best):
    lib.decoder_run(handle, best.ctypes.data, len(best), out)
handle = lib.decoder_new(labels, len(labels))
run(handle, best)
"""
COPY = "std::__cxx11::basic_string<char, std::char_traits<char>>::_M_append(char const*, unsigned long)"


def found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, test: str = "", thrown: str = "std::bad_alloc",
    above: str = COPY, running: str = "text += d->labels",
) -> Any:  # fmt: skip
    monkeypatch.setattr(module, "cpp_exception", lambda view: SimpleNamespace(type=thrown, what=thrown))
    view = native_view(
        folder, PROGRAM, SOURCE.replace("TEST", test), at="lib.decoder_run", way=[("decoder_run", running)],
        suffix="cpp",
    )  # fmt: skip
    view.native_stack.insert(0, NativeFrame(function=above, image="/lib/libstdc++.so.6"))
    return module.copied_element(view)


def test_element_is_named_with_what_fills_its_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(tmp_path, monkeypatch)
    assert told.summary == (
        "`d->labels[id]`, which it copies, is probably beyond the elements of `d->labels`: nothing checks `id`"
    )
    assert "(ops.cpp:6 in decoder_new(), which line 5 calls, fills it) before ops.cpp:15 uses it" in told.advice
    assert "what line 4 passes may count more" in told.advice


@pytest.mark.parametrize(
    "how",
    [
        {"test": "if (id >= (int)d->labels.size()) continue;"},
        {"thrown": "std::runtime_error"},
        {"above": "operator new(unsigned long)"},  # nothing was copied: the function asked for memory itself
        {"running": "return copy(out"},
    ],
)
def test_nothing_is_said_of_other_failures(
    how: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path, monkeypatch, **how) is None
