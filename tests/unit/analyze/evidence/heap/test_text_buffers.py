"""Buffers of a fixed size that a C function fills with text, and text where a pointer should be."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.heap import text_buffers as module
from pytracer.analyze.evidence.heap.text_buffers import text_buffer
from pytracer.analyze.evidence.own_code.own_signature import Definition
from pytracer.analyze.evidence.own_code.pointer_content import numbers_in_word, text_in_word

CALL = "def show(lib, x):\n    text = ctypes.{made}\n    lib.describe(x, {given})\n    return text.value\n"
BODY = '    sprintf(out, "%f", values[0]);\n'


def found_in(source: str, monkeypatch: pytest.MonkeyPatch, parameters: str, body: str) -> Any:
    definition = Definition("describe.c:4", "describe.c", 4, parameters, body)
    monkeypatch.setattr(module, "program_frames", lambda _: [])
    monkeypatch.setattr(module, "program_files", lambda *_: {"/tmp/show.py": ast.parse(source)})
    monkeypatch.setattr(module, "place_of", lambda _, __, line: f"line {line}")
    monkeypatch.setattr(module, "own_definition", lambda _, name: definition if name == "describe" else None)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=None))
    return text_buffer(view)


@pytest.mark.parametrize("given", ["text", "ctypes.byref(text)", "ctypes.c_void_p(text)"])
def test_buffer_is_named_with_the_function_that_fills_it(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = CALL.replace("{made}", "create_string_buffer(64)").replace("{given}", given)
    found = found_in(source, monkeypatch, "const float *values, char *out", BODY)
    assert found is not None
    assert (found.name, found.place, found.call, found.writer) == ("text", "line 2", "line 3", "sprintf")
    assert "Make `text` at line 2 (`ctypes.create_string_buffer(64)`)" in found.advice


@pytest.mark.parametrize(
    ("made", "given", "parameters", "body"),
    [
        (
            "create_string_buffer(64)",
            "text, 64",
            "const float *values, char *out, int n",
            '    snprintf(out, n, "");\n',
        ),
        ("create_string_buffer(64)", "text", "const float *values, const char *in", BODY),  # it is read
        ("create_string_buffer(64)", "other", "const float *values, char *out", BODY),
        ("c_int(64)", "text", "const float *values, char *out", BODY),
    ],
)
def test_no_buffer_whose_size_is_known_or_that_is_not_written(
    made: str, given: str, parameters: str, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CALL.replace("{made}", made).replace("{given}", given)
    assert found_in(source, monkeypatch, parameters, body) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (int.from_bytes(b",0.5302,", "little"), ",0.5302,"),
        (int.from_bytes(b"has no a", "little"), "has no a"),
        (int.from_bytes(b"short\0\0\0", "little"), None),
        (0x3F80_0000_3F80_0000, None),  # two float32
        (0x7F12_3456_7890, None),
        (-1, None),
    ],
)
def test_text_where_a_pointer_should_be(value: int, text: str | None) -> None:
    assert text_in_word(value) == text
    if text is not None:
        assert numbers_in_word(value) == f"the text `{text}`"


def test_path_of_the_sources_is_not_needed(tmp_path: Path) -> None:
    """Nothing of the program is known: no buffer."""
    snapshot = SimpleNamespace(argv=(), created_wall_ns=0)
    crash = SimpleNamespace(python_stack=(), python_threads=(), images=())
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=SimpleNamespace(pid=1, main_pthread=None, **vars(snapshot)))
    )
    view.crash = crash
    assert text_buffer(view) is None
