"""A text that C++ took for a number: which column of which line, and the file that it was read from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.native.aborts import CppException
from pytracer.analyze.evidence.own_code import converted_text as module
from pytracer.analyze.evidence.own_code.converted_text import converted_text
from tests.support.native_views import native_view

SOURCE = """\
static std::vector<std::string> split_columns(const std::string &line)
{
    std::istringstream in(line);
    std::vector<std::string> columns;
    std::string word;
    while (in >> word)
        columns.push_back(word);
    return columns;
}
static Utterance parse_line(const std::string &line)
{
    const std::vector<std::string> columns = split_columns(line);
    Utterance u;
    u.duration = std::stod(columns.at(2));
    return u;
}
extern "C" void *manifest_load(const char *path)
{
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line))
        manifest->items.push_back(parse_line(line));
    return manifest;
}
"""
IN_ONE = """\
extern "C" long load(const char *name, double *out)
{
    std::ifstream table{name};
    std::string row, cell;
    while (std::getline(table, row)) {
        std::stringstream cells(row);
        std::vector<std::string> parts;
        while (std::getline(cells, cell, ','))
            parts.push_back(cell);
        const std::string price = parts[4];
        out[n++] = std::stod(price);
    }
    return n;
}
"""
PROGRAM = "def run(lib, path):\n    return lib.{}(str(path).encode(){})\nrun(1, 2)\n"


def found(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str = SOURCE,
    *,
    name: str = "std::invalid_argument",
    what: str = "stod",
    way: tuple[tuple[str, str], ...] = (("parse_line", "std::stod"), ("manifest_load", "parse_line(line))")),
) -> Any:
    monkeypatch.setattr(module, "cpp_exception", lambda view: CppException(name, what))
    function = way[-1][0]
    program = PROGRAM.format(function, ", out" if function == "load" else "")
    return converted_text(native_view(folder, program, source, at="return lib", way=way, suffix="cpp"))


def test_column_of_a_line_is_named_with_the_file_that_it_was_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = found(tmp_path, monkeypatch)
    assert told.summary == (
        "`columns.at(2)`, the third column of a line of the file `str(path)` (split at white space), is no number"
    )
    assert told.advice == (
        "Look for a line whose third column (`columns.at(2)`) is no number in the file that line 2 passes "
        "(`str(path)`): a heading, a line of another layout, or a space inside of a column before it, such as in a "
        "path or a name, which moves it."
    )


def test_columns_are_split_in_the_same_function_and_by_another_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = found(tmp_path, monkeypatch, IN_ONE, way=(("load", "std::stod"),))
    assert told.summary == (
        "`parts[4]`, the fifth column of a line of the file `str(path)` (split at ','), is no number"
    )
    assert "or ',' inside of a column before it" in told.advice


def test_whole_line_has_no_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = IN_ONE.replace("std::stod(price)", "std::stod(row)")
    told = found(tmp_path, monkeypatch, source, way=(("load", "std::stod"),))
    assert told.summary == "`row`, a line of the file `str(path)`, is no number"
    assert told.advice.startswith("Look for a line that is no number in the file that line 2 passes (`str(path)`)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("std::ifstream file(path);", "std::ifstream file(root + path);"),
        ("parse_line(line))", "parse_line(trim(line)))"),
    ],
)
def test_what_the_source_leaves_open_is_left_out(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = found(
        tmp_path,
        monkeypatch,
        SOURCE.replace(old, new),
        way=(("parse_line", "std::stod"), ("manifest_load", "manifest->items")),
    )
    assert told.summary == "`columns.at(2)`, the third column of a line (split at white space), is no number"


@pytest.mark.parametrize(
    ("name", "what", "source"),
    [
        ("std::out_of_range", "stod", SOURCE),  # a number, but one that is too large
        ("std::invalid_argument", "bad header", SOURCE),
        ("std::invalid_argument", "stoi", SOURCE),  # that is not of this line
        ("std::invalid_argument", "stod", SOURCE.replace("columns.at(2)", 'std::getenv("SCALE")')),
        # a line of all lines
        (
            "std::invalid_argument",
            "stod",
            SOURCE.replace("in >> word", "getline(in, word)").replace("file(path)", "file"),
        ),
        # the third one of those that are not empty
        ("std::invalid_argument", "stod", SOURCE.replace("columns.push", "if (!word.empty()) columns.push")),
        ("std::invalid_argument", "stod", SOURCE.replace("Utterance u;", "columns.erase(columns.begin());")),
    ],
)
def test_other_exceptions_and_texts_are_none(
    name: str, what: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path, monkeypatch, source, name=name, what=what) is None
