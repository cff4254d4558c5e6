"""A byte of a text that C takes for a letter, in the index of an array of a fixed size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.letter_index import letter_index
from tests.support.native_views import native_view

SOURCE = """\
#define LETTERS 26
typedef struct Node { struct Node *next[LETTERS]; int id; } Node;
int trie_encode(const Node *root, const char *text, int *out, int max)
{
    const char *p = text;
    const Node *n = root;
    int count = 0;
    for (int i = 0; p[i]; i++) {
        TEST
        n = n->next[p[i] - 'a'];
        if (!n)
            break;
        if (n->id >= 0)
            out[count++] = n->id;
    }
    return count;
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(word, out):
    lib.trie_encode(root, word.encode("utf-8"), out.ctypes.data, 64)
run("Küste", out)
"""


def found(
    folder: Path, *pairs: tuple[str, str], test: str = "", running: str = "if (n->id", program: str = PROGRAM
) -> Any:
    source = SOURCE.replace("TEST", test)
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return letter_index(native_view(folder, program, source, at="lib.trie_encode", way=[("trie_encode", running)]))


def test_array_is_named_with_the_letters_that_it_has_and_the_text(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told.summary == (
        "probably `next[p[i] - 'a']` (ops.c:10) was taken for a byte that is not 'a' to 'z': `next` has 26 elements, "
        "and nothing checks `p[i] - 'a'`"
    )
    assert "Look for bytes other than 'a' to 'z' in `word.encode('utf-8')`, which line 4 passes" in told.advice
    assert "inside 0..25 (`next`, ops.c:2)" in told.advice


def test_freed_memory_may_be_what_was_read(tmp_path: Path) -> None:
    """Where the program calls what frees it; a function that nothing calls is none."""
    frees = ("int trie_encode", "void trie_free(Node *n) { free(n); }\nint trie_encode")
    assert found(tmp_path, frees) is not None
    assert found(tmp_path, frees, program=PROGRAM.replace('run("K', 'lib.trie_free(root)\nrun("K')) is None


def test_element_that_nothing_set_may_be_what_was_read(tmp_path: Path) -> None:
    """Of malloc(), which clears nothing."""

    def made(body: str) -> Any:
        new = "Node *node_new(void) { Node *made = malloc(sizeof *made); " + body + " return made; }\n"
        return found(tmp_path, ("int trie_encode", f"{new}int trie_encode"))

    assert made("made->id = -1;") is None
    assert made("memset(made, 0, sizeof *made);") is not None
    assert made("for (int i = 0; i < LETTERS; i++) made->next[i] = NULL;") is not None


def test_index_in_a_variable_is_followed(tmp_path: Path) -> None:
    told = found(tmp_path, ("n = n->next[p[i] - 'a'];", "int k = p[i] - 'a'; n = n->next[k];"))
    assert "`next[k]`" in told.summary and "nothing checks `p[i] - 'a'`" in told.summary


@pytest.mark.parametrize(
    ("pairs", "how"),
    [
        ((), {"test": "if (p[i] < 'a' || p[i] > 'z') continue;"}),
        ((), {"test": "if (!islower(p[i])) continue;"}),
        ([("next[LETTERS]", "next[SIZE]")], {}),
        ([("p[i] - 'a'", "p[i] - base")], {}),
        ((), {"running": "return count"}),
    ],
    ids=["compared", "asked", "unknown size", "no letter", "far behind"],
)
def test_nothing_is_said_of_other_indices(pairs: Any, how: dict[str, str], tmp_path: Path) -> None:
    assert found(tmp_path, *pairs, **how) is None
