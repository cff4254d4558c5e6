"""Who allocated what the program's own native code frees, by its source: other allocators and second owners."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.freed_pointer import freed_pointer, release_of
from pytracer.analyze.evidence.own_code.freed_reasons import (
    CopiedOwner,
    LiteralFreed,
    MovedResult,
    OtherAllocator,
    OwnedByObject,
    TakenMember,
)
from pytracer.analyze.evidence.own_code.freeing_line import bare
from pytracer.report.job import NativeFrame, SourceLine
from tests.support.native_views import native_view

ALLOCATOR = """namespace detail {
void* allocate(size_t size) {
  char* p = static_cast<char*>(malloc(size + 64));
  {moved}
  return p;
}
void free(void* p) { ::free(static_cast<char*>(p) - 64); }
}
struct Simulator {
  py::array_t<float> run(int n) {
    float* state = static_cast<float*>(detail::allocate(n * 4));
    return give(state);
  }
  py::array_t<float> give(float* state) {
    auto owner = py::capsule(state, [](void* data) { delete[] reinterpret_cast<float*>(data); });
    return py::array_t<float>(9, state, owner);
  }
};
"""
VECTOR = """static void release(void* p) { free(p); }
at::Tensor counts(int64_t n) {
  {declared}
  return torch::from_blob({given}, {n}, release, torch::kFloat32);
}
"""
OWNER = """class Tokenizer {
 public:
  {constructor}
  ~Tokenizer() { delete words_; }
  Words* words() { return words_; }
  Words* words_;
};
struct Model {
  Tokenizer tokenizer() const { return tokenizer_; }
  Tokenizer tokenizer_;
};
void bind() {
  c.def("words", &Tokenizer::words, py::return_value_policy::{policy});
}
"""


def view_of(run: Path, source: str, line: str) -> Any:
    """A process that died while the line with that text ran."""
    file, library = run / "ops.cpp", run / "ops.so"
    file.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    os.utime(file, (1000, 1000))
    number = next(n for n, text in enumerate(source.splitlines(), 1) if line in text)
    lines = [
        SourceLine(function="operator()", file=str(file), line=number),
        SourceLine(function="std::_Function_handler::_M_invoke", file="/usr/include/c++/12/bits/f.h", line=9),
    ]
    frames = [NativeFrame(function="_int_free", image="/lib/libc.so.6"), NativeFrame(image=str(library), lines=lines)]
    return SimpleNamespace(native_stack=frames)


def test_memory_of_an_own_allocator_is_named_with_what_frees_it(tmp_path: Path) -> None:
    found = freed_pointer(view_of(tmp_path, ALLOCATOR.replace("{moved}", "p += 64;"), "delete[]"))
    assert isinstance(found, OtherAllocator)
    assert found.summary == "`state` is of detail::allocate() (ops.cpp:11), but delete[] frees it (ops.cpp:15)"
    assert "by detail::free() at ops.cpp:15" in found.advice


def test_an_allocator_that_hands_out_the_start_of_a_block_is_not_blamed(tmp_path: Path) -> None:
    assert freed_pointer(view_of(tmp_path, ALLOCATOR.replace("{moved}", ""), "delete[]")) is None


def test_a_state_that_two_lines_pass_is_not_followed(tmp_path: Path) -> None:
    text = ALLOCATOR.replace("{moved}", "p += 64;").replace("return give(state);", "give(other); return give(state);")
    assert freed_pointer(view_of(tmp_path, text, "delete[]")) is None


@pytest.mark.parametrize(
    ("declared", "given", "known"),
    [
        ("std::vector<float> counts(n);", "counts.data()", "`std::vector<float> counts`"),
        ("std::vector<float> counts(n);", "&counts[0]", "`std::vector<float> counts`"),
        ("torch::Tensor counts = torch::zeros(n);", "counts.data_ptr<float>()", "`torch::Tensor counts`"),
        ("auto counts = make(n);", "counts.data()", None),
        ("float* counts = (float*) malloc(n);", "counts", None),
    ],
)
def test_memory_that_an_object_frees_itself_has_two_owners(
    declared: str, given: str, known: str | None, tmp_path: Path
) -> None:
    source = VECTOR.replace("{declared}", declared).replace("{given}", given)
    found = freed_pointer(view_of(tmp_path, source, "free(p)"))
    assert (found.declared if isinstance(found, OwnedByObject) else None) == known
    assert known is None or (found is not None and "ops.cpp:4" in found.summary)


def test_a_member_that_python_takes_has_two_owners(tmp_path: Path) -> None:
    source = OWNER.replace("{constructor}", "").replace("{policy}", "take_ownership")
    found = freed_pointer(view_of(tmp_path, source, "delete words_"))
    assert isinstance(found, TakenMember) and "take_ownership of Tokenizer::words() (ops.cpp:13)" in found.summary


@pytest.mark.parametrize(
    ("constructor", "copied"),
    [
        ("Tokenizer(int n);", True),
        ("Tokenizer(const Tokenizer& other);", False),
        ("Tokenizer(const Tokenizer&) = delete;", False),
    ],
)
def test_a_class_without_copy_constructor_that_is_returned_frees_twice(
    constructor: str, copied: bool, tmp_path: Path
) -> None:
    source = OWNER.replace("{constructor}", constructor).replace("{policy}", "reference_internal")
    found = freed_pointer(view_of(tmp_path, source, "delete words_"))
    assert isinstance(found, CopiedOwner) == copied
    assert not copied or (found is not None and "ops.cpp:9 copies one" in found.summary)


def test_a_line_that_frees_nothing_or_two_things_is_left_alone(tmp_path: Path) -> None:
    assert freed_pointer(view_of(tmp_path, OWNER, "Words* words()")) is None
    both = OWNER.replace("delete words_;", "delete words_; delete other_;")
    assert freed_pointer(view_of(tmp_path, both, "delete words_")) is None


@pytest.mark.parametrize(
    ("allocator", "release"),
    [
        ("spectrum_alloc", "spectrum_free"),
        ("spectrum", "spectrum_free"),
        ("pool::create_image", "pool::destroy_image"),
        ("other", None),
    ],
)
def test_the_release_of_an_allocator_has_its_name(allocator: str, release: str | None) -> None:
    text = "void spectrum_free(float *p) { free(p - 4); }\nvoid destroy_image(void *p) { put(p); }\n"
    assert release_of(text, allocator) == release


@pytest.mark.parametrize(
    "text", ["p", "(float *)p", "static_cast<float*>(p)", "reinterpret_cast<char *>((void *) p)", " (struct a *) p "]
)
def test_casts_are_removed(text: str) -> None:
    assert bare(text) == "p"


SOLVER = """struct solver *solver_open(const char *method) {
  struct solver *s = calloc(1, sizeof *s);
  s->method = strdup(method);
  {default}
  return s;
}
void solver_close(struct solver *s) {
  free(s->method);
}
"""
TRIM = """char *trim(const char *text) {
  char *own = strdup(text);
  {moves}
  return own;
}
void release(char *p) { free(p); }
"""
READER = """\
def name(text):
    address = lib.trim(text)
    lib.release(address)
name(b" lion")
"""


def test_a_text_of_the_program_itself_that_is_freed_is_named(tmp_path: Path) -> None:
    source = SOLVER.replace("{default}", 'if (!*method) s->method = "lu";')
    found = freed_pointer(view_of(tmp_path, source, "free(s->method)"))
    assert isinstance(found, LiteralFreed)
    assert 'ops.cpp:4 sets `s->method` to "lu", which is no block of malloc()' in found.summary
    assert 'Write `strdup("lu")` at ops.cpp:4' in found.advice
    plain = SOLVER.replace("{default}", '// s->method = "lu";')
    assert freed_pointer(view_of(tmp_path, plain, "free(s->method)")) is None


@pytest.mark.parametrize("moves", ["while (*own == ' ') own++;", 'own += strspn(own, " ");', "(void)text;"])
def test_an_address_that_its_maker_moved_on_is_named(moves: str, tmp_path: Path) -> None:
    found = freed_pointer(
        native_view(tmp_path, READER, TRIM.replace("{moves}", moves), at="lib.release", way=[("release", "free(p)")])
    )
    assert isinstance(found, MovedResult) == ("own" in moves)
    if isinstance(found, MovedResult):
        assert "`address` is of trim(), which returns an address inside of a block (ops.c:3 moves it)" in found.summary
        assert found.advice.endswith("Line 3 passes `address`.")
