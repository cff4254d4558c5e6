"""The lines that made the values of a failing line, of programs that really fail there."""

from __future__ import annotations

import textwrap
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.slicing.lines_behind import lines_behind
from pytracer.report.job import PythonFrame


def behind(folder: Path, source: str, about: Behind | None = None) -> list[str]:
    """`3 rows = load()` for each line, of the program's innermost failing line."""
    file = folder / "train.py"
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"__name__": "__main__"})  # noqa: S102
    except Exception as error:
        frames = [item for item in traceback.extract_tb(error.__traceback__)[::-1] if item.filename == str(file)]
    else:
        raise AssertionError("the program did not fail")
    stack = [PythonFrame(function=item.name, file=item.filename, line=item.lineno) for item in frames]
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    return [f"{item.line} {item.text}" for item in lines_behind(snapshot, stack, about=about)]


def test_values_are_followed_through_functions_arguments_and_attributes(tmp_path: Path) -> None:
    source = """\
    class Table:
        def __init__(self, rows):
            self.rows = rows
            self.unused = 5

        def look(self, at):
            place = at + 1
            return self.rows[place]

    def load(count):
        other = 7
        return list(range(count))

    rows = load(3)
    table = Table(rows)
    table.look(2)
    """
    assert behind(tmp_path, source) == [
        "12 return list(range(count))",
        "14 rows = load(3)",
        "15 table = Table(rows)",
        "16 table.look(2)",
        "7 place = at + 1",
        "8 return self.rows[place]",
    ]


def test_line_that_filled_a_container_is_shown(tmp_path: Path) -> None:
    source = """\
    rows = []
    for number in range(3):
        rows.append(number)
    size = 9
    rows[4]
    """
    assert behind(tmp_path, source) == [
        "1 rows = []",
        "2 for number in range(3):",
        "3 rows.append(number)",
        "5 rows[4]",
    ]


def test_what_comes_after_the_line_is_shown_only_of_a_loop(tmp_path: Path) -> None:
    once = """\
    def run():
        total = 0
        10 // total
        total += 1
    run()
    """
    assert behind(tmp_path, once) == ["2 total = 0", "3 10 // total"]
    looped = """\
    def run():
        total = 2
        while True:
            10 // total
            total -= 1
    run()
    """
    assert behind(tmp_path, looped) == ["2 total = 2", "5 total -= 1", "4 10 // total"]


def test_of_three_lines_that_may_have_bound_it_none_is_shown(tmp_path: Path) -> None:
    source = """\
    import sys
    def run(kind):
        if kind == 1:
            size = 1
        elif kind == 2:
            size = 2
        else:
            size = 0
        return 10 // size
    run(3)
    """
    assert behind(tmp_path, source) == []


def test_statement_of_several_lines_is_one_line(tmp_path: Path) -> None:
    source = """\
    size = max(
        0,
        0,
    )
    10 // size
    """
    assert behind(tmp_path, source) == ["1 size = max(0, 0)", "5 10 // size"]


def test_file_that_changed_since_shows_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("size = 0\n10 // size\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=file.stat().st_mtime_ns - 10**9)
    assert lines_behind(snapshot, [PythonFrame(function="<module>", file=str(file), line=2)]) == []


def test_line_that_is_on_record_as_the_maker_is_shown(tmp_path: Path) -> None:
    """Of a tensor that came through a queue, no source leads there."""
    file = tmp_path / "train.py"
    file.write_text("def make(n):\n    return [0] * n\n\ndef use(batch):\n    batch[0]\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    use = PythonFrame(function="use", file=str(file), line=5)
    assert lines_behind(snapshot, [use]) == []
    found = lines_behind(snapshot, [use], [PythonFrame(function="make", file=str(file), line=2)])
    assert [(item.function, item.text) for item in found] == [("make", "return [0] * n"), ("use", "batch[0]")]


def test_library_whose_function_is_called_is_no_value(tmp_path: Path) -> None:
    source = """\
    import ctypes
    lib = ctypes.CDLL(None)
    count = "seven"
    lib.labs(ctypes.c_long(count))
    """
    assert behind(tmp_path, source) == ['3 count = "seven"', "4 lib.labs(ctypes.c_long(count))"]


def test_line_that_changes_a_tensor_in_place_is_shown(tmp_path: Path) -> None:
    source = """\
    import torch
    mask = torch.ones(4)
    mask.zero_()
    mask.data = mask.data[:2]
    print_it = mask.sum()
    mask[3]
    """
    assert behind(tmp_path, source) == [
        "2 mask = torch.ones(4)",
        "3 mask.zero_()",
        "4 mask.data = mask.data[:2]",
        "6 mask[3]",
    ]


def test_test_that_led_to_a_raise_is_shown_with_what_made_its_values(tmp_path: Path) -> None:
    source = """\
    def check(rows):
        count = len(rows)
        if count < 3:
            raise ValueError("too few")
    check([1])
    """
    assert behind(tmp_path, source) == [
        "5 check([1])",
        "2 count = len(rows)",
        "3 if count < 3:",
        '4 raise ValueError("too few")',
    ]


def test_value_is_followed_through_a_thread_and_a_queue(tmp_path: Path) -> None:
    """The stack of a thread does not have what started it."""
    file = tmp_path / "train.py"
    source = """\
    import queue, threading
    def work(jobs, results):
        size = jobs.get()
        results.append(10 // size)
    def main():
        jobs, results = queue.Queue(), []
        thread = threading.Thread(target=work, args=(jobs, results))
        rows = []
        jobs.put(len(rows))
        thread.start()
    main()
    """
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    found = lines_behind(snapshot, [PythonFrame(function="work", file=str(file), line=4)])
    shown = [item.text for item in found]
    assert shown[-1] == "results.append(10 // size)"
    assert {"jobs.put(len(rows))", "thread = threading.Thread(target=work, args=(jobs, results))"} <= {*shown}


def test_function_with_two_calls_is_not_followed_beyond_the_stack(tmp_path: Path) -> None:
    """Which of them it was is not known."""
    file = tmp_path / "train.py"
    file.write_text("def work(size):\n    10 // size\nwork(1)\nwork(0)\n", encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    assert lines_behind(snapshot, [PythonFrame(function="work", file=str(file), line=2)]) == []


def test_lines_on_record_are_followed_right_after_what_the_line_reads(tmp_path: Path) -> None:
    """There is room for few lines."""
    file = tmp_path / "train.py"
    makers = "".join(f"a{n} = {n}\n" for n in range(3))
    text = f"{makers}def make(shift):\n    low = shift + 1\n    return [low]\nmake(3)\n"
    text += "def use(batch):\n    f(" + ", ".join(f"a{n}" for n in range(3)) + ", batch)\n"
    file.write_text(text, encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    line = len(text.splitlines())
    found = lines_behind(
        snapshot,
        [PythonFrame(function="use", file=str(file), line=line)],
        [PythonFrame(function="make", file=str(file), line=6)],
    )
    assert {"low = shift + 1", "return [low]", "make(3)"} <= {item.text for item in found}


def test_what_autograd_keeps_for_the_backward_is_followed_into_the_forward(tmp_path: Path) -> None:
    source = """\
    import torch
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, rows):
            kept = rows[:2]
            ctx.rows = kept
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad.view(9) + x, ctx.rows[5]
    x = torch.ones(3, requires_grad=True)
    Scale.apply(x, [1, 2, 3]).sum().backward()
    """
    shown = behind(tmp_path, source)
    assert shown[-1] == "13 return grad.view(9) + x, ctx.rows[5]"
    assert {"5 kept = rows[:2]", "6 ctx.rows = kept", "7 ctx.save_for_backward(x)", "12 (x,) = ctx.saved_tensors"} <= {
        *shown
    }


TWO = """\
first = [1, 2]
second = len(first) - 2
third = max(3, 4)
10 // second + third
"""


def test_only_values_that_are_at_fault_are_followed(tmp_path: Path) -> None:
    assert behind(tmp_path, TWO, Behind(("second",))) == [
        "1 first = [1, 2]",
        "2 second = len(first) - 2",
        "4 10 // second + third",
    ]


def test_line_that_the_verdict_names_is_shown_whatever_the_values_are(tmp_path: Path) -> None:
    file = str(tmp_path / "train.py")
    assert behind(tmp_path, TWO, Behind(lines=((file, 3),))) == ["3 third = max(3, 4)", "4 10 // second + third"]


def test_of_a_text_of_several_lines_the_line_is_shown_that_the_verdict_names(tmp_path: Path) -> None:
    """C that the program compiles."""
    source = 'SOURCE = """\nvoid f(float *x) {\n    x[9] = 0;\n}\n"""\n[][0]\n'
    about = Behind(lines=((str(tmp_path / "train.py"), 3),))
    assert behind(tmp_path, source, about) == ["3 x[9] = 0;", "6 [][0]"]


def test_lines_of_one_file_are_shown_together(tmp_path: Path) -> None:
    """Also where another file's lie between them by their numbers; the failing line's file comes last."""
    other, source = tmp_path / "data.py", "first = 1\n\n\n\n\n\ndef load():\n    return first - 1\n"
    other.write_text(source, encoding="utf-8")
    main = "def size():\n    return 2\ndef other():\n    return 3\n\n\n\n\ndef last():\n    return 4\nsize() / 0\n"
    file = str(tmp_path / "train.py")
    about = Behind(lines=((file, 2), (str(other), 8), (file, 10), (str(other), 1)))
    assert [item.partition(" ")[0] for item in behind(tmp_path, main, about)] == ["1", "8", "2", "10", "11"]


def test_named_lines_of_libraries_and_the_failing_one_are_not_shown(tmp_path: Path) -> None:
    file = str(tmp_path / "train.py")
    assert behind(tmp_path, TWO, Behind(lines=((file, 4), (textwrap.__file__, 40)))) == []


def test_nothing_is_shown_where_no_value_is_at_fault(tmp_path: Path) -> None:
    assert behind(tmp_path, TWO, Behind()) == []


def test_what_was_given_to_the_call_that_made_it_wrong_is_not_followed(tmp_path: Path) -> None:
    """Of a view, the numbers in it have nothing to do with its layout."""
    source = """\
    import torch
    numbers = torch.arange(3) * 2
    wide = numbers.expand(4, -1)
    wide.add_(1)
    """
    about = Behind(("wide",), makers=frozenset({"expand"}))
    assert behind(tmp_path, source, about) == ["3 wide = numbers.expand(4, -1)", "4 wide.add_(1)"]
    assert "2 numbers = torch.arange(3) * 2" in behind(tmp_path, source, Behind(("wide",)))


def test_value_of_another_line_is_followed_from_there(tmp_path: Path) -> None:
    file = str(tmp_path / "train.py")
    about = Behind(lines=((file, 2),), elsewhere=(((file, 2), ("first",)),))
    assert behind(tmp_path, TWO, about)[:2] == ["1 first = [1, 2]", "2 second = len(first) - 2"]


def test_what_only_changes_numbers_in_place_is_left_out_where_a_size_is_wrong(tmp_path: Path) -> None:
    source = """\
    import torch
    rows = [torch.ones(2)]
    rows.append(torch.ones(2))
    total = torch.stack(rows)
    total.mul_(2)
    total[3]
    """
    shown = behind(tmp_path, source, Behind(("total",), sizes=True))
    assert "5 total.mul_(2)" not in shown
    assert {"3 rows.append(torch.ones(2))", "4 total = torch.stack(rows)"} <= {*shown}
    assert "5 total.mul_(2)" in behind(tmp_path, source, Behind(("total",)))


def test_of_an_unexplained_fault_only_the_next_lines_that_compute_are_shown(tmp_path: Path) -> None:
    """Memory for a result, and constants of the module, are the least likely to be at fault."""
    source = """\
    import torch
    SIZE = 3
    def work(rows):
        ends = rows.cumsum(0) + 1
        out = torch.empty(SIZE)
        out[ends]
    work(torch.ones(9, dtype=torch.long))
    """
    assert behind(tmp_path, source, Behind(None)) == [
        "7 work(torch.ones(9, dtype=torch.long))",
        "4 ends = rows.cumsum(0) + 1",
        "6 out[ends]",
    ]


def test_generators_parsers_and_objects_of_no_arguments_are_no_values(tmp_path: Path) -> None:
    source = """\
    import argparse
    import random
    class Net:
        size = 0
    rng = random.Random(3)
    parser = argparse.ArgumentParser()
    args = parser.parse_args([])
    net = Net()
    10 // (net.size * len(vars(args)) * rng.randint(1, 2))
    """
    assert behind(tmp_path, source, Behind(("rng", "args", "net"))) == []


def test_what_a_lambda_reads_is_not_read_by_its_line(tmp_path: Path) -> None:
    source = """\
    norms = dict(a=1)
    scale = 2
    [].index(lambda: norms, scale)
    """
    assert behind(tmp_path, source) == ["2 scale = 2", "3 [].index(lambda: norms, scale)"]


def test_number_in_the_name_of_a_file_is_not_followed(tmp_path: Path) -> None:
    source = """\
    import os
    folder = os.path.join("a", "b")
    step = int("7")
    path = os.path.join(folder, f"model_{step}.pt")
    open(path)
    """
    assert behind(tmp_path, source) == [
        '2 folder = os.path.join("a", "b")',
        '4 path = os.path.join(folder, f"model_{step}.pt")',
        "5 open(path)",
    ]


def test_place_of_a_value_comes_behind_what_the_value_was_made_of(tmp_path: Path) -> None:
    """Where there are lines enough without it, it is not shown."""
    short = """\
    sizes = [0, 0]
    day = 2 - 1
    size = sizes[day]
    10 // size
    """
    assert behind(tmp_path, short, Behind(("size",)))[:2] == ["1 sizes = [0, 0]", "2 day = 2 - 1"]
    long = """\
    first = 0
    second = first * 2
    third = second * 2
    sizes = [third, 0]
    day = 2 - 1
    size = sizes[day]
    10 // size
    """
    assert "5 day = 2 - 1" not in behind(tmp_path, long, Behind(("size",)))
