"""Null pointers that a call in the program's own C returned, and that nothing asks for: by the source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.unchecked_result import unchecked_result
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <string.h>
static const entry *find(const vocab *v, const char *word) {
    for (int i = 0; i < v->count; i++) if (!strcmp(v->entries[i].word, word)) return &v->entries[i];
    {nothing}
}
long vocab_id(const vocab *v, const char *tok) {
    {made}
    {between}
    {use}
}
"""
PROGRAM = """def ids(lib, vocab, words):
    return [lib.vocab_id(vocab, word.encode()) for word in words]


ids(1, 2, 3)
"""


def view_of(
    folder: Path,
    *,
    nothing: str = "return NULL;",
    made: str = "const entry *e = find(v, tok);",
    between: str = "",
    use: str = "return e->id;",
    base: int = 0,
    inlined: str | None = None,
    access: str = "read",
) -> Any:
    """A process that died in line `use` of vocab_id(). `inlined`: a header of a function that is inlined there."""
    file, library, program = folder / "vocab.c", folder / "libvocab.so", folder / "train.py"
    text = SOURCE
    for name, words in (("nothing", nothing), ("made", made), ("between", between), ("use", use)):
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM, encoding="utf-8")
    os.utime(file, (1000, 1000))
    lines = [SourceLine("vocab_id", str(file), 9)]
    if inlined is not None:
        lines.insert(0, SourceLine("at", inlined, 5))
    stack = (PythonFrame("ids", str(program), 2), PythonFrame("<module>", str(program), 5))
    crash = SimpleNamespace(
        arrays=(), numbers=(), holders=(), arguments=(), python_stack=stack, python_threads=(), native_stack=(),
        registers={}, images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[NativeFrame(function="vocab_id", image=str(library), lines=lines)], crash=crash,
        process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=(),
        instruction=SimpleNamespace(base="rax", base_value=base), fault=SimpleNamespace(access=access),
    )  # fmt: skip


def test_result_that_nothing_asks_for_is_named_with_what_was_looked_for(tmp_path: Path) -> None:
    found = unchecked_result(view_of(tmp_path))
    assert found is not None
    assert found.summary == (
        "`e` is null, as `find(v, tok)` at vocab.c:7 returned it, for `word.encode()`, which line 2 passes"
    )
    assert found.advice == (
        "Check `e` before vocab.c:9 uses it: nothing does behind `find(v, tok)` at vocab.c:7, which returns null at "
        "vocab.c:4. Let vocab_id() report that to its caller. Then look at `word.encode()`, which line 2 passes: it is "
        "what was asked for."
    )


@pytest.mark.parametrize(
    "how",
    [
        {"made": "const entry *e; e = find(v, tok);"},
        {"made": "const entry *e = (const entry *)v->find(tok);"},
        {"made": "const entry *e = static_cast<const entry *>(v->find(tok));"},
        {"use": "return *e + 1;"},
        {"use": "return e[0];"},
    ],
)
def test_other_ways_to_write_it_are_found(how: dict[str, str], tmp_path: Path) -> None:
    found = unchecked_result(view_of(tmp_path, **how))  # type: ignore[arg-type]
    assert found is not None and found.summary.startswith("`e` is null, as `")


@pytest.mark.parametrize(
    "how",
    [
        {"between": "if (!e) return -1;"},
        {"between": "assert(e);"},
        {"between": "fetch(&e);"},
        {"between": "e = v->entries;"},
        {"use": "return e->next->id;"},
        {"use": "return e->ids[0];"},
        {"use": "return e->id + v->count;"},
        {"use": 'return strcmp(e->word, "x") == 0;'},
        {"use": "TRACE(e->id);"},
        {"use": "memcpy(&number, e->data, sizeof number);"},
        {"use": "return e ? e->id : v->count;"},
        {"made": "const entry *e = NULL; if (v->count) e = find(v, tok);"},
        {"made": "const entry *e = find(v, tok)->next;"},
        {"made": "const entry *e = v->count ? find(v, tok) : v->entries;"},
        {"made": "entry *e = malloc(sizeof(entry));"},
        {"made": "std::vector<entry> e = find(v, tok);", "use": "return e[0].id;"},
        {"made": "auto e = v->find(tok);"},
        {"made": "*e = find(v, tok);"},
        {"base": 0x1000},
        {"inlined": "/usr/include/c++/12/bits/hashtable.h"},
    ],
)
def test_pointers_that_something_else_may_have_set_or_that_are_tested_are_not_told(
    how: dict[str, Any], tmp_path: Path
) -> None:
    assert unchecked_result(view_of(tmp_path, **how)) is None


def test_line_that_returns_null_is_named_only_where_nothing_else_may_be_null(tmp_path: Path) -> None:
    """An element of a table may be null as well."""
    found = unchecked_result(view_of(tmp_path, nothing="if (!v->slots) return NULL; return v->slots[0];"))
    assert found is not None and "returns null at" not in found.advice


@pytest.mark.parametrize(
    ("use", "call"),
    [
        ('v->count = *(const int *)dlsym(so, "OBS_N");', 'dlsym(so, "OBS_N")'),
        ('int n = *(int*) dlsym(so, "OBS_N");', 'dlsym(so, "OBS_N")'),
        ('return *reinterpret_cast<const int *>(dlsym(so, "OBS_N"));', 'dlsym(so, "OBS_N")'),
        ("return find(v, tok)->id;", "find(v, tok)"),
        ("return *find(v, tok);", "find(v, tok)"),
    ],
)
def test_line_that_goes_through_what_a_call_returned(use: str, call: str, tmp_path: Path) -> None:
    """Without a variable between."""
    found = unchecked_result(view_of(tmp_path, made="int n = 0;", use=use))
    assert found is not None and found.summary == f"`{call}` returned null"
    assert found.advice.startswith(f"Check what `{call}` returns before vocab.c:9 goes through it: nothing does")


def test_symbol_that_is_static_is_named(tmp_path: Path) -> None:
    """Of a source that has it so; else only what to look for."""
    use = 'return *(const int *)dlsym(so, "OBS_N");'
    found = unchecked_result(
        view_of(tmp_path, nothing="return NULL; } static const int OBS_N = 5; void f(void) {", use=use)
    )
    assert found is not None and "it is `static` at vocab.c:4" in found.advice
    found = unchecked_result(view_of(tmp_path, use=use))
    assert found is not None and "static" not in found.advice
    assert "where the library does not export `OBS_N` (`nm -D` lists what it does)." in found.advice


def test_wrapper_of_fopen_is_told_with_what_it_returns(tmp_path: Path) -> None:
    """As of fopen() itself."""
    found = unchecked_result(view_of(tmp_path, nothing='return fopen(word, "r");', made="FILE *e = opened(v, tok);"))
    assert found is not None and "fopen" not in found.advice
    text = 'return NULL; } FILE *opened(const char *word) { return fopen(word, "r");'
    found = unchecked_result(view_of(tmp_path, nothing=text, made="FILE *e = opened(tok);"))
    assert found is not None and "opened() returns what fopen() does. fopen() returns null where" in found.advice


@pytest.mark.parametrize(
    "how",
    [
        {"use": "return find(v, tok)->next->id;"},
        {"use": "return find(v->list, tok)->id;"},
        {"use": "return find(v, tok)->id + v->count;"},
        {"use": "return n * find(v, tok);"},
        {"use": "*(int *)find(v, tok) = 1;", "access": "write"},
        {"use": "return find(v, tok) ? find(v, tok)->id : 0;"},
        {"use": "return *find(v, tok) + *find(v, word);"},
    ],
)
def test_line_with_another_pointer_is_not_told(how: dict[str, Any], tmp_path: Path) -> None:
    """Nor one that writes, multiplies, or asks before."""
    assert unchecked_result(view_of(tmp_path, made="int n = 0;", **how)) is None


def test_folder_that_the_program_changed_is_told_of_a_path_that_may_be_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAM
    changes = 'os.chdir(config["out"])'
    monkeypatch.setitem(globals(), "PROGRAM", program.replace("\nids(", f"\n{changes}; ids("))
    found = unchecked_result(view_of(tmp_path, made='FILE *e = fopen(tok, "r");'))
    assert found is not None
    assert """(`os.chdir(config['out'])`) ran before, a relative path is looked up in that folder""" in found.advice
    fixed = unchecked_result(view_of(tmp_path, made='FILE *e = fopen("/data/x", "r");'))
    assert fixed is not None and "chdir" not in fixed.advice
    monkeypatch.setitem(globals(), "PROGRAM", f"{program}{changes}\n")  # behind the call that failed
    later = unchecked_result(view_of(tmp_path, made='FILE *e = fopen(tok, "r");'))
    assert later is not None and "chdir" not in later.advice
