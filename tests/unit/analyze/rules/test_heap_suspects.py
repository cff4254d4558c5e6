"""Whom the advice about a damaged heap suspects: what the program brought and called, and nothing without support."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.heap import heap_suspects
from pytracer.analyze.evidence.heap.heap_suspects import negative_lines
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, advice, died, image, summary, verdict
from tests.support.synth import Box

ABORT: dict[str, Any] = {"signal": 6, "code": -6, "sender_pid": 101}
SIZES = "double free or corruption (!prev)\n"
TOP = [(LIBC_SO, "abort"), (LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), (LIBC_SO, "__libc_free")]
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
NUMPY = "/venv/lib/python3.11/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
ARRAY = [*TOP, (NUMPY, "array_dealloc"), PYTHON]
TENSOR = [*TOP, (s.TORCH_CPU, "at::native::add(at::Tensor const&, at::Tensor const&)"), PYTHON]
BY_CTYPES = [*TOP, ("/usr/lib/libffi.so.8", "ffi_call"), PYTHON]
OWN = "/home/user/job/libecho.so"
PREFIX = "/home/user/.pyenv/versions/3.11.7"
OTHERS = [
    LIBC_SO, NUMPY, s.TORCH_CPU, f"{PREFIX}/bin/python3.11", f"{PREFIX}/lib/libpython3.11.so.1.0",
    f"{PREFIX}/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", f"{PREFIX}/lib/libexpat.so.1",
    "/usr/lib/libjemalloc.so.2", "/tmp/torchinductor_user/ab/cab.main.so", "/home/user/.triton/cache/ab/launcher.so",
    "/usr/local/cuda-12.4/lib64/libcudart.so.12", "/venv/lib/python3.11/site-packages/pandas/_libs/lib.so",
    "/home/user/pytracer/libpytracer_core.so", "linux-vdso.so.1", "/opt/vendor/lib/libfabric.so.1",
]  # fmt: skip
CALLS = """import ctypes
import numpy as np

def augment(library, room):
    library.echo(ctypes.byref(room), 3)
    return np.ascontiguousarray(room)
"""
SUSPECT = "libecho.so, which line 5 (`library.echo(ctypes.byref(room), 3)`) calls"


def advised(
    run: Path, *paths: str, stack: Any = TENSOR, source: str | None = CALLS, text: str = SIZES, **how: Any
) -> str:
    file = run / "augment.py"
    if source is not None:
        file.write_text(source, encoding="utf-8")
        os.utime(file, (0, 0))  # before the recorded process began
    images = tuple(image(path, number) for number, path in enumerate((*OTHERS, *paths)))
    how = {**ABORT, "abort_text": text, "images": images, "python": [("augment", str(file), 6)], **how}
    report = died(run, stack_of=stack, **how)
    assert verdict(report) == ("heap-corruption", "certain")
    return advice(report)


def test_memory_of_numpy_suspects_the_library_that_the_program_calls(run: Path) -> None:
    """Not NumPy, which only came to free it, nor what damages torch's memory."""
    for text in (SIZES, "free(): invalid pointer\n"):
        said = advised(run, OWN, stack=ARRAY, text=text)
        assert said.startswith(
            f"Look first at {SUSPECT}: native code must not free(), realloc() or write outside of mem"
        )
        assert "check_invariants" not in said and "extensions" not in said


def test_memory_of_torch_suspects_it_as_well_and_keeps_guard_mode(run: Path) -> None:
    said = advised(run, OWN)
    assert "`pytracer run --guard`" in said
    assert said.startswith(
        "First suspect is echo() of libecho.so, to which line 5 passes `room`: an index or count that"
    )


@pytest.mark.parametrize(
    ("name", "before", "buffer", "is_suspect"),
    [
        ("keep", False, "keep", True),
        ("scores", False, "keep", False),  # what lies behind another tensor was not written by that
        ("scores", True, "keep", True),
        ("keep", True, "keep", False),
        (None, True, "keep", False),
    ],
)
def test_counted_write_reaches_what_lies_behind_its_buffer(
    name: str | None, before: bool, buffer: str, is_suspect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a tensor lies one that is not known: any buffer but the tensor itself."""
    written = SimpleNamespace(buffer=buffer, lines=())
    monkeypatch.setattr(
        heap_suspects, "counted_write", lambda view, wanted=None: written if wanted in (None, buffer) else None
    )
    monkeypatch.setattr(heap_suspects, "own_allocation", lambda view: None)
    monkeypatch.setattr(heap_suspects, "counted_memory", lambda view: None)
    monkeypatch.setattr(heap_suspects, "infinity_store", lambda view, word: None)
    view: Any = None
    beside: Any = SimpleNamespace(name=name, overrun=SimpleNamespace(before=before, word=1), made=None)
    assert (heap_suspects.suspect_behind(view, beside) is not None) == is_suspect


@pytest.mark.parametrize("stack", [ARRAY, TENSOR])
def test_libraries_of_others_are_no_suspects(stack: Any, run: Path) -> None:
    """Of the system, of Python, of packages, of vendors, and what torch compiled."""
    said = advised(run, stack=stack)
    assert "libecho" not in said and "Look first at" not in said
    assert "or into a freed one, in this call or long before" in said
    assert (
        "First suspects are sizes and indices that native code does not check, and extensions built for another torch. "
        in said
    )


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import torch\n\nx = torch.sparse_coo_tensor(i, v)\n", "First suspects are indices that are not checked (sp"),
        ("import torch\n\nx = y.to_sparse_csr()\n", "First suspects are indices that are not checked (sparse tensors"),
        (None, "First suspects are indices that are not checked (sparse tensors"),
        ("import torch\n\nx = torch.embedding_bag(w, i)\n", "First suspects are sizes and indices that native code"),
    ],
    ids=["sparse", "csr", "unknown source", "not sparse"],
)
def test_sparse_tensors_are_suspects_where_the_program_may_use_them(source: str | None, says: str, run: Path) -> None:
    assert says in advised(run, source=source, python=[("augment", str(run / "augment.py"), 3)])


def test_a_sparse_program_with_a_library_has_both_suspects(run: Path) -> None:
    said = advised(run, OWN, source=CALLS.replace("np.ascontiguousarray(room)", "room.to_sparse()"))
    assert said.startswith(
        f"First suspects are indices that are not checked (sparse tensors: check_invariants=True) and {SUSPECT}."
    )


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            "import ctypes\nlib = ctypes.CDLL(p)\n\nlib.f(x.data_ptr(), 3)\n\n\n",
            ["f() of libecho.so, to which line 4 passes `x`:"],
        ),
        (
            "import ctypes\nlib = ctypes.CDLL(p)\n\nlib.f(x.ctypes.data, 3)\n\n\n",
            ["f() of libecho.so, to which line 4 passes `x`:"],
        ),
        ("import libecho as e\n\n\ne.f(x)\n\n\n", ["f() of libecho.so, to which line 4 passes `x`:"]),
        ("from job import libecho\n\n\nlibecho.f(x)\nlibecho.g(x)\n\n", ["line 4 (`libecho.f(x)`)", "line 5 (`libech"]),
        ("import ctypes\n\n\ntorch.f(x.data_ptr())\nctypes.memmove(x.data_ptr(), y, 3)\n\n", []),
        (
            "import torch\n\nops.y = torch.ops.aten.add(x)\ntorch.ops.job.f(x)\n\n\n",
            ["f() of libecho.so, to which line 4 passes `x`:"],
        ),
        (
            "import ctypes\nlib = ctypes.CDLL(p)\nc = ctypes.CDLL('libc.so.6')\nc.puts(b'x')\nlib.f(at(x), len(x))\n\n",
            ["f() of libecho.so, to which line 5 passes `x`:"],
        ),
        (
            "import ctypes\nlib = ctypes.CDLL(p)\nlib.new(3)\nlib.f(h, np.asarray(x.cpu()).ctypes.data)\n\n\n",
            ["f() of libecho.so, to which line 4 passes `x`:"],
        ),
        ("import ctypes\n\n\nc = ctypes.CDLL('libc.so.6')\nc.memcpy(x.data_ptr(), y, 3)\n\n", []),
        ("import other\n\n\nother.f(x.data_ptr())\n\n\n", []),
        ("import libecho\n\nlibecho.f()\nlibecho.f()\nlibecho.f()\nlibecho.f()\n", []),
    ],
    ids=[
        "data_ptr",
        "ctypes.data",
        "extension",
        "two lines",
        "custom operator",
        "helper",
        "handle",
        "a library of the system",
        "not of a library",
        "without ctypes",
        "too many lines",
    ],
)
def test_lines_that_call_the_library_are_named(source: str, lines: list[str], run: Path) -> None:
    """One or two of them; the look-alikes pass addresses to torch or ctypes themselves."""
    said = advised(run, OWN, source=source)
    assert "libecho.so" in said
    assert all(line in said for line in lines)
    assert ("which line" in said) == bool(lines)


def test_a_wrapper_beside_the_program_is_searched(run: Path) -> None:
    """Most projects keep the calls of their library in a file of its own."""
    (run / "native.py").write_text("import ctypes\nlib = ctypes.CDLL(p)\nlib.f(x.data_ptr(), 3)\n", encoding="utf-8")
    os.utime(run / "native.py", (0, 0))
    said = advised(run, OWN, source="from native import lib\n\nmodel(x)\n\n\n\n")
    assert "f() of libecho.so, to which native.py:3 passes `x`:" in said
    assert "to which" not in advised(run, OWN, source="import os\n\nmodel(x)\n\n\n\n")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("ids[seen] = -1", "Line 6 (`ids[seen] = -1`) makes negative numbers: none may get there as an index."),
        ("ids = ids.masked_fill(seen, -100)", "makes negative numbers"),
        ("mask[seen] = -1.5", ""),
        ("n = -1", ""),
        ("ids[seen] = -1; other = 1\nids[old] = -2", ""),
    ],
    ids=["item", "masked_fill", "a float", "no tensor", "two lines"],
)
def test_a_line_that_fills_in_negative_numbers_is_named(lines: str, said: str, run: Path) -> None:
    advice = advised(run, OWN, source=f"import ctypes\nlib = ctypes.CDLL(p)\n\nlib.f(ids.data_ptr(), 3)\n\n{lines}\n\n")
    assert said in advice and bool(said) == ("negative numbers" in advice)


CLOSED = """class Meter:
    def close(self):
        lib.meter_free(self.handle)

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        {}


{}
"""


@pytest.mark.parametrize(
    ("last", "below", "twice"),
    [
        ("self.close()", "", True),
        ("pass", "meter = Meter()\nmeter.close()", True),
        ("pass", "file = open(p)\nfile.close()", False),
        ("self.handle = None", "meter = Meter()\nmeter.close()", False),
    ],
    ids=["__del__", "by its user", "another object's", "set anew"],
)
def test_an_object_that_two_lines_free_is_freed_once(last: str, below: str, twice: bool, run: Path) -> None:
    stack = [*TOP, (OWN, "meter_free"), *BY_CTYPES[-2:]]
    text, source = "free(): double free detected in tcache 2\n", CLOSED.format(last, below)
    said = advised(
        run, OWN, stack=stack, text=text, source=source, python=[("Meter.close", str(run / "augment.py"), 3)]
    )
    assert said.startswith("Set `self.handle = None` behind line 3, and return from close() where it is") == twice
    assert ("is called at line 6 (__exit__) and line" in said) == twice
    assert said.startswith("Look first at meter_free, which frees it") != twice


def test_free_that_ctypes_called_is_the_lines_own(run: Path) -> None:
    """libffi is no function to look at; a function of the program's own library is."""
    text = "free(): invalid pointer\n"
    assert advised(run, stack=BY_CTYPES, text=text).startswith("Look first at line 6, which frees it")
    own = [*TOP, (OWN, "release"), *BY_CTYPES[-2:]]
    assert advised(run, OWN, stack=own, text=text).startswith("Look first at release, which frees it")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("IGNORE = -100\nlabels[mask] = IGNORE\n", [2]),
        ("labels[mask] = -1\n", [1]),
        ("labels[mask] = 255\n", []),
        ("labels[mask] = other\n", []),
        ("IGNORE = -100\nIGNORE = read()\nlabels[mask] = IGNORE\n", []),  # either may be meant
    ],
)
def test_lines_that_make_negative_numbers(text: str, lines: list[int]) -> None:
    """By a constant of the file as well."""
    assert negative_lines(ast.parse(text)) == lines


# ---- the end of the program, and memory that a struct alone points at

PARSER = (f"{s.TORCH}/lib/libtorch_python.so", "torch::PythonArgParser::~PythonArgParser()")
AT_EXIT = [*TOP, PARSER, (LIBC_SO, "__run_exit_handlers"), (LIBC_SO, "exit"), (LIBC_SO, "__libc_start_main")]
STRUCT = """import cffi
ffi = cffi.FFI()
io = ffi.new("io_t *")
{}
x = torch.zeros(8)
"""
BASE = 0x5581_0000_1000


def ended(run: Path, given: str, stack: Any = AT_EXIT, **how: Any) -> Report:
    """A program whose Python code had ended; line 5 of it allocated a storage."""
    file = run / "engine.py"
    file.write_text(STRUCT.format(given), encoding="utf-8")
    os.utime(file, (0, 0))
    box = Box(pid=101).alloc(BASE, 32, by=("<module>", str(file), 5))
    how = {**ABORT, "abort_text": SIZES, "images": (image(LIBC_SO),), "python": [], **how}
    return died(run, box=box, stack_of=stack, **how)


def test_damage_that_the_end_of_the_program_noticed(run: Path) -> None:
    """It says nothing about what frees memory there in every program."""
    report = ended(run, "io.rows = rows")
    assert (
        " aborted at the end of the program, in its exit handlers, because the C library found its heap damaged: "
        in (summary(report))
    )
    assert summary(report).endswith("; it may have been damaged long before.")
    assert "PythonArgParser" not in summary(report) + advice(report)
    invalid = ended(run, "io.rows = rows", abort_text="free(): invalid pointer\n")
    assert "Look first at" not in advice(invalid)


def test_what_the_programs_own_library_frees_at_the_end_is_looked_at_first(run: Path) -> None:
    """The look-alike: its destructor may free what is no block."""
    stack = [*TOP, (OWN, "Cache::~Cache()"), *AT_EXIT[-3:]]
    report = ended(run, "io.rows = ffi.new('row_t[]', 4)", stack, abort_text="free(): invalid pointer\n")
    assert "at the end of the program, in its exit handlers," in summary(report)
    assert "below Cache::~Cache" in summary(report) and "long before" not in summary(report)
    assert advice(report).startswith("Look first at Cache::~Cache")


def test_memory_that_a_struct_alone_points_at_is_the_first_suspect(run: Path) -> None:
    """Where no Python code is running, by the files that allocated storages."""
    report = ended(run, "io.rows = ffi.new('row_t[]', 4)")
    assert verdict(report) == ("heap-corruption", "certain")
    assert summary(report).endswith(
        "it may have been damaged long before: first suspect is a dangling pointer, as nothing holds the memory whose "
        "address `io.rows` keeps (engine.py:4)."
    )
    assert advice(report).startswith("Hold `ffi.new('row_t[]', 4)` (engine.py:4) in a variable or attribute as well")
    held = ended(run, "rows = io.rows = ffi.new('row_t[]', 4)")
    assert "io.rows" not in summary(held) + advice(held)


def test_a_running_program_is_not_at_its_end(run: Path) -> None:
    """exit() that native code calls ends a program in the middle of it."""
    report = ended(run, "io.rows = rows", python=[("<module>", str(run / "engine.py"), 5)])
    assert "end of the program" not in summary(report)


@pytest.mark.parametrize(
    ("given", "inner", "named"),
    [
        ("io.rows = ffi.new('row_t[]', 4)", (s.PYTHON, "PyObject_Vectorcall"), True),
        ("rows = io.rows = ffi.new('row_t[]', 4)", (s.PYTHON, "PyObject_Vectorcall"), False),
        ("io.rows = ffi.new('row_t[]', 4)", (OWN, "Index::search(float const*)"), False),
    ],
    ids=["the interpreter's objects are overwritten", "held", "another function's own pointer"],
)
def test_a_wild_pointer_of_the_interpreter_may_come_of_such_memory(
    given: str, inner: Any, named: bool, run: Path
) -> None:
    how: dict[str, Any] = {"signal": 11, "code": 128, "sender_pid": 0, "addr": 0, "abort_text": None}
    how |= {"registers": {"rax": 0x7149_F2CA_7149_F2CA}, "code_bytes": bytes.fromhex("f680a900000008")}
    report = ended(run, given, [inner, PYTHON], **how, python=[("<module>", str(run / "engine.py"), 5)])
    assert verdict(report)[0] == "wild-pointer"
    assert ("nothing holds the memory whose address `io.rows` keeps (engine.py:4)" in summary(report)) == named
    assert advice(report).startswith("Hold `ffi.new('row_t[]', 4)`") == named


UNCHECKED = """import torch

def interactions(rows, values, users):
    seen = torch.sparse_coo_tensor(rows, values, (users,){options})
    return torch.sparse.sum(seen)
"""


@pytest.mark.parametrize(("options", "suspected"), [("", True), (", check_invariants=True", False)])
def test_sparse_tensor_of_the_line_is_the_first_suspect(options: str, suspected: bool, run: Path) -> None:
    """Who noticed is a destructor; the look-alike has checked its indices."""
    file = run / "interactions.py"
    file.write_text(UNCHECKED.format(options=options), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    images = tuple(image(path, number) for number, path in enumerate(OTHERS))
    report = died(
        run, **ABORT, abort_text=SIZES, images=images, stack_of=TENSOR, python=[("interactions", str(file), 5)]
    )
    said = "the first suspects are the indices of `seen`, which torch.sparse_coo_tensor() at line 4 does not check"
    assert (said in summary(report)) == suspected


PICK = """import ctypes
import numpy as np

SOURCE = r\"\"\"
void pick(int *out, int *num, const float *x, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > 0) out[kept++] = i;
    *num = kept;
}
\"\"\"

def load_pick(path):
    return ctypes.CDLL(path).pick

class Picker:
    def __init__(self, path, limit):
        self.limit = limit
        self.run = load_pick(path)

    def __call__(self, x):
        out = np.zeros(min(len(x), self.limit), dtype=np.int32)
        num = ctypes.c_int(0)
        self.run(out.ctypes.data, ctypes.byref(num), x.ctypes.data, len(x))
        return out[:num.value]

def train(picker, x):
    return picker(x)
"""
CLEARS = [*TOP, (NUMPY, "array_dealloc"), (s.PYTHON, "_PyFrame_Clear"), PYTHON]


def told(run: Path, source: str, text: str = SIZES) -> tuple[str, str]:
    """The headline and the advice where the last line of a program was running."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    os.utime(file, (0, 0))
    images = tuple(image(path, number) for number, path in enumerate((*OTHERS, "/home/user/job/libpick.so")))
    at = [("train", str(file), len(source.splitlines()))]
    report = died(run, stack_of=CLEARS, **ABORT, abort_text=text, images=images, python=at)
    return summary(report), advice(report)


def test_buffer_that_is_made_smaller_than_the_loop_of_c_may_fill_is_the_first_suspect(run: Path) -> None:
    """Where NumPy freed a local array of the function that had called it, whatever the variable is called."""
    headline, said = told(run, PICK)
    assert "found as NumPy freed a local array of a function that had ended" in headline
    assert headline.endswith(
        "the first suspect is pick() of libpick.so (line 24 in Picker.__call__), whose train.py:8 (`if (x[i] > 0) "
        "out[kept++] = i;`) may write up to `len(x)` elements into `out`, which line 22 makes with "
        "`min(len(x), self.limit)`."
    )
    assert said.startswith("First suspect is train.py:8 (`if (x[i] > 0) out[kept++] = i;`) in pick() of libpick.so, wh")
    assert "Make `out` with `len(x)` elements, or pass its size to pick() and stop there." in said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(len(x), self.limit)", "len(x)"),
        ("out = np", "x = x[:self.limit]\n        out = np"),
        ("if (x[i] > 0) out", "if (x[i] > 0 && kept < 300) out"),
        ("int kept = 0;", "int kept = 0; int *room = malloc(sizeof(int)); for (int k = 0; k < n; k++) room[k] = k;"),
    ],
    ids=["as large", "cut before", "bounded in C", "another suspect"],
)
def test_buffer_that_is_large_enough_or_not_the_only_suspect_is_not_named(old: str, new: str, run: Path) -> None:
    assert old in PICK
    headline, said = told(run, PICK.replace(old, new, 1))
    assert "may write up to" not in headline and "compares their number with nothing" not in said


def test_pointer_that_was_wrong_itself_does_not_come_of_a_short_buffer(run: Path) -> None:
    headline, said = told(run, PICK, "free(): invalid pointer\n")
    assert "may write up to" not in headline and "First suspect" not in said
