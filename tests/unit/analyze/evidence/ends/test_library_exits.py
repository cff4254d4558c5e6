"""The condition below which a native library ends the process, by its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.ends.library_exits import library_condition
from pytracer.report.job import NativeFrame, SourceLine

BLOCK = """\
image load(const char *name) {
    for (int k = 0; k < 3; ++k) { use(k); }
    if (!pixels
        || is_short(pixels, "a) { b")) {
        // if (other) {
        fprintf(stderr, "cannot load {%s}", name);
        exit(0);
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BLOCK, 'where `!pixels || is_short(pixels, "a) { b")` holds (load.c:3)'),
        ("void stop(void) {\n    if (count < 0) exit(2);\n", "where `count < 0` holds (load.c:2)"),
        ("void stop(void) {\n    if (count < 0)\n        _exit(2);\n", "where `count < 0` holds (load.c:2)"),
        ("void stop(void) {\n    if (count < 0) { log(); }\n    exit(2);\n", None),
        ("void stop(void) {\n    if (count < 0) { go_on(); } else {\n        exit(2);\n", None),
        ("void stop(void) {\n    if (count < 0)\n        log();\n    exit(2);\n", None),
        ("void stop(void) {\n    while (count < 0) {\n        exit(2);\n", None),
        ("void stop(void) {\n    end_of(2);\n", None),
    ],
)
def test_condition_is_that_of_the_call_itself(text: str, words: str | None, tmp_path: Path) -> None:
    """Another `if` above it decides nothing."""
    source, library = tmp_path / "load.c", tmp_path / "libload.so"
    source.write_text(text + "}\n", encoding="utf-8")
    library.touch()
    line = text.count("\n")
    frame = NativeFrame(image=str(library), function="load", lines=[SourceLine(file=str(source), line=line)])
    found = library_condition(frame)
    assert (found.words if found is not None else None) == words
