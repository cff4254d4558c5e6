"""The C++ layout, as compiled, against the codec that reads the file."""

from __future__ import annotations

import subprocess
from enum import IntEnum
from pathlib import Path

from pytracer.blackbox import schema
from pytracer.blackbox.codec import layout
from tests.native.harness import CSRC

MAIN = """
#include <cstdio>
#include "layout.h"
using namespace pytracer::blackbox;
int main() {
%s
}
"""


def test_every_field_lies_where_the_codec_reads_it(built: Path, tmp_path: Path) -> None:
    """Size of every structure, offset and size of every field, constants and enumerators are equal on both sides."""
    lines, expected = [], {}
    for definition in schema.STRUCTS:
        offsets = layout(definition).offsets
        ends = [*list(offsets.values())[1:], definition.nbytes]
        lines.append(f'printf("{definition.name} %zu 0\\n", sizeof({definition.name}));')
        expected[definition.name] = (definition.nbytes, 0)
        for (field, offset), end in zip(offsets.items(), ends, strict=True):
            name = f"{definition.name}.{field}"
            member = f"{definition.name}::{field}"
            lines.append(f'printf("{name} %zu %zu\\n", sizeof({member}), offsetof({definition.name}, {field}));')
            expected[name] = (end - offset, offset)
    enums: dict[str, type[IntEnum]] = {
        "State": schema.State,
        "RegionKind": schema.Region,
        "RecordKind": schema.Record,
        "EntryKind": schema.Entry,
        "Step": schema.Step,
        "CrashState": schema.CrashState,
    }
    for name, enum in enums.items():
        for item in enum:
            word = "k" + "".join(part.capitalize() for part in item.name.split("_"))
            lines.append(f'printf("{name}::{word} %u 0\\n", static_cast<unsigned>({name}::{word}));')
            expected[f"{name}::{word}"] = (int(item), 0)
    for name in ("RECORDS_PER_THREAD", "FREED_PER_THREAD", "THREADS_PER_CHUNK", "JOURNAL_BYTES", "HEADER_BYTES"):
        word = "k" + "".join(part.capitalize() for part in name.split("_"))
        lines.append(f'printf("{word} %zu 0\\n", static_cast<size_t>({word}));')
        expected[word] = (getattr(schema, name), 0)
    source = tmp_path / "layout.cpp"
    source.write_text(MAIN % "\n".join(lines), encoding="utf-8")
    program = tmp_path / "layout"
    subprocess.run(["g++", "-std=c++20", f"-I{CSRC / 'blackbox'}", "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    found = {words[0]: (int(words[1]), int(words[2])) for words in map(str.split, printed)}
    assert found == expected
    assert len(found) > 250
