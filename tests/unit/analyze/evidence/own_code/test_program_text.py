"""C that a program has as text, at the program's lines."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytracer.analyze.evidence.own_code.program_text import program_sources
from pytracer.decode.types.snapshot import PythonFrame

WHOLE = '''"""Says {{ what }} it does (for f();)."""
SOURCE = {begin}int twice(int n) {{
    return 2 * n;
}}
"""
build(SOURCE)
'''


def lines_of(folder: Path, text: str) -> list[str]:
    """Of the program's C, by its lines."""
    program = folder / "train.py"
    program.write_text(text, encoding="utf-8")
    frame = PythonFrame("<module>", str(program), 1)
    crash = SimpleNamespace(python_stack=(frame,), python_threads=())
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, crash=crash)
    view = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot), crash=crash, python_stack=None, region_python=())
    found = program_sources(view, ["/gone/libtwice.so"])  # type: ignore[arg-type]
    return found[0][1] if found else []


@pytest.mark.parametrize(("begin", "first"), [('r"""', 2), ('"""', 2), ('r"""\n', 3), ('"""\\\n', 3)])
def test_lines_are_those_of_the_program(begin: str, first: int, tmp_path: Path) -> None:
    """However the text begins."""
    lines = lines_of(tmp_path, WHOLE.format(begin=begin))
    assert lines[first - 1 : first + 2] == ["int twice(int n) {", "    return 2 * n;", "}"]
    assert not any(lines[: first - 1])


def test_lines_of_several_literals_are_those_of_each(tmp_path: Path) -> None:
    """Which Python puts together."""
    text = 'SOURCE = (\n    "int twice(int n) {\\n"\n    "    return 2 * n;\\n"\n    "}\\n"\n)\n'
    assert lines_of(tmp_path, text)[1:4] == ["int twice(int n) {", "    return 2 * n;", "}"]


@pytest.mark.parametrize(
    "text",
    [
        'SOURCE = "int twice(int n) { int k = n;\\n return 2 * k; }\\n// and more\\n"\n',
        'build(f"int twice(int n) {{{{ return {FACTOR} * n; }}}}")\n',
        'build("int twice(int n) {{ return {} * n; }}".format(2))\n',
        'SOURCE = "int twice(int n) { return %d * n; }"\nbuild(SOURCE % 2)\n',
        'from string import Template\nSOURCE = "int twice(int n) { return $k * n; }"\nbuild(Template(SOURCE))\n',
        'print("nothing to compile; see {the} manual (if any)")\n',
    ],
    ids=["one line of three", "f-string", "format", "percent", "template", "no C"],
)
def test_text_that_is_not_what_the_compiler_got_is_left_out(text: str, tmp_path: Path) -> None:
    """Or whose lines are not the program's."""
    assert not lines_of(tmp_path, text)
