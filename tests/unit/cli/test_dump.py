"""`pytracer dump`: one recording as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytracer._errors import InputError
from pytracer.blackbox.schema import Entry
from pytracer.cli.dump import SECTIONS, collect, command
from tests.support.synth import Box


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def dumped(path: Path, *arguments: str) -> Any:
    return json.loads(run(str(path), "--json", *arguments))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    box = Box(rank=1).alloc(0x7F0000000000, 4096, by=("f", "f.py", 9)).free(0x7F0000000000, by="MulBackward0")
    box.at(250).step(3).mark("hello").collective("gloo:all_reduce", nbytes=64, addr=0x7F0000000000)
    box.crash(addr=0x7F0000000010, python=[("f", "f.py", 9)], native=[("/gone/x.so", 0x1100)])
    return box.write(tmp_path / "node0.101.blackbox")


def test_every_part_is_in_text_and_json(path: Path) -> None:
    """In the same order."""
    text = run(str(path), *(f"--kind={section}" for section in SECTIONS))
    places = [text.index(f"\n{section}") for section in SECTIONS]
    assert places == sorted(places)
    value = dumped(path)
    assert [k for k in value if k in SECTIONS] == list(SECTIONS)
    assert (value["schema"], value["version"]) == ("pytracer-dump", 1)


def test_json_addresses_are_hex_strings(path: Path) -> None:
    """As in the report."""
    value = dumped(path)
    assert value["storages"][0]["base"] == "0x7f0000000000"
    assert value["crash"]["fault_addr"] == "0x7f0000000010"
    assert value["crash"]["registers"]["rip"] == value["crash"]["pc"]
    assert value["records"][-1]["buffer_addr"] == "0x7f0000000000"


def test_times_count_from_the_box(path: Path) -> None:
    """And records are oldest first."""
    records = dumped(path, "--kind", "records")["records"]
    assert [r["kind"] for r in records] == ["STEP", "MARK", "COLLECTIVE"]
    assert 250_000_000 <= records[0]["time_ns"] < 251_000_000
    assert "+250.0" in run(str(path), "--kind", "records")


def test_interned_entries_are_listed_with_the_rest(path: Path) -> None:
    """CODE and NODE are journal entries, too."""
    journal = {e["kind"]: e["data"] for e in dumped(path, "--kind", "journal")["journal"]}
    assert journal["CODE"] == {"function": "f", "file": "f.py", "first_line": 6}
    assert journal["NODE"] == "MulBackward0"
    assert journal["RANK"]["rank"] == 1


def test_names_and_scopes_are_dumped_as_their_text(tmp_path: Path) -> None:
    """They are interned, too, and have no struct; an entry that cannot be read is called that."""
    box = Box(rank=1)
    box.entry(Entry.NAME, b"layers.0")
    box.entry(Entry.SCOPE, b"validate")
    box.entry(Entry.CODE, b"?")
    text = run(str(box.write(tmp_path / "node0.101.blackbox")), "--kind", "journal")
    assert "NAME  layers.0" in text and "SCOPE  validate" in text and "CODE  unreadable" in text
    assert "None" not in text


def test_limit_keeps_the_last_and_says_how_many_went(path: Path) -> None:
    """In both views."""
    value = dumped(path, "--kind", "records", "--limit", "1")
    assert [r["kind"] for r in value["records"]] == ["COLLECTIVE"]
    assert value["left_out"] == {"records": 2}
    text = run(str(path), "--kind", "records", "--limit", "1")
    assert "records (3)" in text
    assert "... 2 before these" in text


def test_memory_map_is_text_on_request_only(tmp_path: Path) -> None:
    """It is hundreds of lines long."""
    path = Box().crash(mappings=[(0x1000, 0x2000, "r-xp", 0x400, "/lib/x.so")]).write(tmp_path / "a.blackbox")
    assert "0x1000-0x2000" not in run(str(path))
    assert "0x1000-0x2000 r-xp 0x400 /lib/x.so" in run(str(path), "--kind", "mappings")
    assert dumped(path)["mappings"][0]["start"] == "0x1000"


def test_damage_is_shown(path: Path) -> None:
    """A cut file still dumps."""
    path.write_bytes(path.read_bytes()[:300_000])
    assert "cut off at byte 300000" in run(str(path), "--kind", "damage")


def test_names_in_a_box_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Escape sequences are shown, not sent."""
    text = run(str(Box().mark("\x1b[2Jgone").note("a\rb").write(tmp_path / "a.blackbox")))
    assert "\x1b" not in text and "\r" not in text
    assert "\\x1b[2Jgone" in text


def test_half_a_surrogate_pair_in_json_is_no_trouble(tmp_path: Path) -> None:
    """Python messages may hold one; JSON may not."""
    path = Box().exception("ValueError", "bad \udcff name").write(tmp_path / "a.blackbox")
    (entry,) = [e for e in dumped(path, "--kind", "journal")["journal"] if e["kind"] == "EXCEPTION"]
    assert entry["data"]["message"] == "bad ? name"


def test_errors_are_pytracer_errors(tmp_path: Path) -> None:
    """`pytracer.cli` turns them into one line."""
    with pytest.raises(InputError):
        collect(str(tmp_path / "nothing"))
