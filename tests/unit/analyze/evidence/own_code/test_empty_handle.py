"""A divisor of C that an earlier call of the library counted: what it counts, of which object, and what is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.counted_items import CountedItems, counted_items
from pytracer.analyze.evidence.own_code.native_divisor import NativeDivisor, native_divisor
from pytracer.decode.types.snapshot import PythonFrame
from tests.unit.analyze.evidence.own_code.test_native_divisor import view_of

SOURCE = """typedef struct {{ char **paths; int n; unsigned seed; }} list_t;
list_t *list_open(const char *file, unsigned seed) {{
  FILE *fp = fopen(file, "r");
  list_t *l = calloc(1, sizeof(list_t));
  char line[1024];
  {before}
  while (fgets(line, sizeof line, fp)) {{
    {body}
  }}
  {after}
  return l;
}}
int load_random(list_t *l, int batch, float *x) {{
  for (int b = 0; b < batch; ++b) {{
    int index = rand_r(&l->seed) % l->n;
    x[b] = l->paths[index][0];
  }}
  return batch;
}}
{more}
"""
OPENS = 'FILE *img = fopen(line, "rb"); if (!img) continue; fclose(img);'
ADDS = "l->paths[l->n++] = strdup(line);"
OF_CLASS = """class Images:
    def batch(self, n, x):
        return self.lib.load_random(self.handle, n, x)
    def __init__(self, lib, path, seed):
        self.lib = lib
        self.handle = lib.list_open(path.encode(), seed)
{made}
val.batch(4, 0)
"""
TWO = 'train, val = Images(lib, "train.txt", 1), Images(lib, "val.txt", 2)'
PLAIN = """def sample(lib, images, n, x):
    return lib.load_random(images, n, x)


def step(lib, path, n, x):
    return sample(lib, {passed}, n, x)
"""


def source(body: str = f"{OPENS} {ADDS}", before: str = "", after: str = "", more: str = "") -> str:
    return SOURCE.format(body=body, before=before, after=after, more=more)


def counted(text: str) -> CountedItems | None:
    return counted_items(text, "n", "list_open", vector=False)


def divisor(folder: Path, text: str, program: str, lines: tuple[int, int] = (2, 6)) -> NativeDivisor:
    """`lines`: of the Python frames, the innermost first."""
    view = view_of(folder, [15], function="load_random", source=text)
    file = folder / "train.py"
    file.write_text(program, encoding="utf-8")
    view.crash.python_stack = tuple(PythonFrame("step", str(file), line) for line in lines)
    found = native_divisor(view)
    assert found is not None
    return found


def test_object_is_named_with_the_file_that_it_was_made_of(tmp_path: Path) -> None:
    """Of two lists the one whose method the line called."""
    found = divisor(tmp_path, source(), OF_CLASS.format(made=TWO), (3, 8))
    assert found.words == (
        "`rand_r(&l->seed) % l->n`; `l->n` is 0 for `val` (line 8): list_open(), called at line 6, counts only what "
        "fopen() can open"
    )
    assert found.advice == (
        "Check the file that list_open() reads for `val`, `'val.txt'` (line 7): whether it has lines, and whether the "
        "paths in it exist, seen from where the program runs. ops.c:8 silently skips what fopen() cannot open: let "
        "list_open() report that, and that nothing is left. ops.c:15 divides by `l->n` without a check."
    )


def test_handle_in_a_variable_leads_to_its_line(tmp_path: Path) -> None:
    """No object of Python is around it."""
    found = divisor(tmp_path, source(), PLAIN.format(passed="lib.list_open(path.encode(), 3)"))
    assert "`l->n` is 0: list_open(), called at line 6, counts only what fopen() can open" in found.words
    assert "`path`" in found.advice


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (source(f"if (access(line, R_OK) == 0) {{ {ADDS} }}"), "counts only what access() finds"),
        (source(f"{OPENS} n++;", "int n = 0;", "l->n = n;"), "counts only what fopen() can open"),
        (source(f"if (line[0] == 35) continue; {OPENS} {ADDS}"), "counts only what fopen() can open"),
        (source(f"if (line[0] != 43) continue; {ADDS}"), "counts only what `line[0] != 43` does not keep out"),
        (source(ADDS), "counts what its loop reads"),
        (source(before="if (!fp) return NULL;"), "counts only what fopen() can open"),
    ],
    ids=["access", "a local", "comments", "another condition", "all lines", "no object"],
)
def test_what_is_counted_is_read_from_the_loop(text: str, counts: str) -> None:
    """What decides about an item, and that something is printed."""
    found = counted(text)
    assert found is not None and found.counts == counts


def test_message_of_a_skipped_item_is_not_silent() -> None:
    found = counted(source(f'FILE *i = fopen(line, "r"); if (!i) {{ perror(line); continue; }} {ADDS}'))
    assert found is not None and found.opener == "fopen" and not found.silent


def test_vector_of_the_object_counts_what_is_put_into_it() -> None:
    """`l->paths.size()`, of C++."""
    text = source(f"{OPENS} l->paths.push_back(line);")
    found = counted_items(text, "paths", "list_open", vector=True)
    assert found is not None and found.opener == "fopen"
    assert counted_items(text + "void drop(list_t *l) { l->paths.clear(); }", "paths", "list_open", vector=True) is None


@pytest.mark.parametrize(
    "text",
    [
        source(more="void list_drop(list_t *l) { l->n = 0; }"),
        source(more="void list_pop(list_t *l) { l->n--; }"),
        source(more="void list_fill(list_t *l) { fill(&l->n); }"),
        source(f"{OPENS} if (l->rows > 8) break; {ADDS}"),
        source("", after="l->n = count(fp);"),
        source(before="if (!fp) return l;"),
        source(f"if (line[0] == 35) continue; if (line[1] == 35) continue; {ADDS}"),
    ],
    ids=[
        "another function",
        "taken out",
        "its address",
        "may end before",
        "another value",
        "returned empty",
        "two conditions",
    ],
)
def test_count_that_something_else_decides_is_not_explained(text: str) -> None:
    """The look-alikes: the field may be 0 for another reason."""
    assert counted(text) is None


@pytest.mark.parametrize("passed", ["handles[3]", "path", "lib.list_copy(path)"])
def test_handle_that_comes_from_elsewhere_is_not_explained(passed: str, tmp_path: Path) -> None:
    """An object that no line is known to have made by the function that counts."""
    found = divisor(tmp_path, source(), PLAIN.format(passed=passed))
    assert found.handle is None and "is 0" not in found.words


def test_object_of_one_of_two_calls_is_not_named(tmp_path: Path) -> None:
    """`val` and `train` on one line: which one it was is not known."""
    program = OF_CLASS.format(made=TWO).replace("val.batch(4, 0)", "val.batch(4, 0), train.batch(4, 0)")
    found = divisor(tmp_path, source(), program, (3, 8))
    assert "`l->n` is 0: list_open()" in found.words and "`val`" not in found.words
