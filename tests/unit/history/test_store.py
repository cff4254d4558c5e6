"""The store: what goes in is there once, whatever happens to its files."""

from __future__ import annotations

import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytracer._errors import InputError, PytracerError
from pytracer.history.database import Database
from pytracer.history.rows import SCHEMA_VERSION, arrow_schema, run_key, run_row
from pytracer.history.store import MARKER, Store
from pytracer.report import job as r
from tests.conditions import needs_history
from tests.support.cli import ROOT
from tests.support.histories import DAY, report, rows, tear

pytestmark = needs_history


def count(store: Store) -> int:
    with Database(store) as db:
        return int(db.rows("SELECT count(*) AS n FROM runs")[0]["n"])


def test_run_that_is_added_again_is_there_once(tmp_path: Path) -> None:
    """In the same batch as new ones, too."""
    store = Store(str(tmp_path / "h"))
    first, again = store.add(rows(3)), store.add(rows(5))
    assert (first.new, first.known, again.new, again.known) == (3, 0, 2, 3)
    assert count(store) == 5


def test_run_is_itself_after_redaction_and_elsewhere(tmp_path: Path) -> None:
    """Its directory, id and command may have been replaced, and its bundle copied."""
    one = report(1, directory="/home/a/runs/x", command=["python", "train.py"])
    other = report(1, id="copy", directory="DIR", command=["python", "FILE"])
    assert run_key(one) == run_key(other) != run_key(report(2))


def _add(path: str, first: int, barrier: Any) -> None:
    store = Store(path)
    batch = rows(20, first)
    barrier.wait(30)
    store.add(batch)


def test_two_writers_at_once_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    """They add overlapping runs to a store that neither has begun."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    path = str(tmp_path / "h")
    writers = [context.Process(target=_add, args=(path, first, barrier)) for first in (0, 10)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert count(Store(path)) == 30


def test_overlapping_files_are_counted_once_in_every_view(tmp_path: Path) -> None:
    """As two writers leave them, and a compaction that was killed before it removed the old files."""
    store = Store(str(tmp_path / "h"))
    store.add(rows(3))
    old = [(Path(path), Path(path).read_bytes()) for path in store.files()]
    store.add(rows(2, 3))
    store.compact()
    for path, content in old:
        path.write_bytes(content)
    with Database(store) as db:
        assert db.repeated
        counts = {view: db.rows(f"SELECT count(*) AS n FROM {view}")[0]["n"] for view in ("runs", "nodes", "frames")}
    assert counts == {"runs": 5, "nodes": 10, "frames": 10}
    store.compact()
    assert len(store.files()) == 1 and count(store) == 5


def test_torn_file_is_left_out_and_named(tmp_path: Path) -> None:
    """And nothing else is."""
    store = Store(str(tmp_path / "h"))
    store.add(rows(2))
    store.add(rows(3, 2))
    store.add(rows(4, 5, day=1))
    victim = next(path for path in store.files() if _runs_in(path) == 2)
    tear(victim)
    with Database(store) as db:
        assert db.damaged == [victim]
        assert db.rows("SELECT count(*) AS n FROM runs") == [{"n": 7}]
    before = store.files()
    assert store.compact() == (0, 0) and store.files() == before, "a day with a torn file is not compacted"
    assert store.add(rows(2)).new == 2
    with Database(store) as db:
        assert not db.damaged and db.rows("SELECT count(*) AS n FROM runs") == [{"n": 9}], "the same runs mend it"


def _runs_in(path: str) -> int:
    from pyarrow import parquet

    return int(parquet.ParquetFile(path).metadata.num_rows)


def test_file_that_is_still_written_is_not_read(tmp_path: Path) -> None:
    """It has another name until it is whole."""
    store = Store(str(tmp_path / "h"))
    store.add(rows(2))
    whole = Path(store.files()[0])
    whole.with_name(f".{whole.name}.aside").write_bytes(b"PAR1")
    with Database(store) as db:
        assert not db.damaged and db.rows("SELECT count(*) AS n FROM runs") == [{"n": 2}]


def test_older_file_without_a_column_has_nulls_there(tmp_path: Path) -> None:
    """Columns are only ever added."""
    from pyarrow import parquet

    store = Store(str(tmp_path / "h"))
    store.add(rows(1))
    path = store.files()[0]
    parquet.write_table(parquet.ParquetFile(path).read().drop_columns(["url", "operator"]), path)
    with Database(store) as db:
        assert db.rows("SELECT url, operator FROM runs") == [{"url": None, "operator": None}]
    store.add(rows(1, 1))
    store.compact()
    assert count(store) == 2


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        (json.dumps({"format": "pytracer-history", "version": SCHEMA_VERSION + 1}), "install a newer pytracer"),
        (json.dumps({"format": "else", "version": 1}), "give --store another place"),
        ("not json", "give --store another place"),
        ("[]", "give --store another place"),
    ],
)
def test_store_of_another_kind_is_refused_and_left_alone(tmp_path: Path, marker: str, says: str) -> None:
    """Newer, foreign or damaged."""
    (tmp_path / MARKER).write_text(marker)
    with pytest.raises(InputError, match=says):
        Store(str(tmp_path)).add(rows(1))
    assert [item.name for item in tmp_path.iterdir()] == [MARKER]


def test_store_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "h").write_text("")
    with pytest.raises(PytracerError, match="cannot be used"):
        Store(str(tmp_path / "h")).add(rows(1))


def test_unknown_kind_of_url_is_one_error() -> None:
    """With what can be given instead."""
    with pytest.raises(InputError, match="give --store a directory, or a URL"):
        Store("carrier-pigeon://loft")


def test_runs_are_forgotten_by_key_and_by_age(tmp_path: Path) -> None:
    """Only those; the others of their day stay."""
    store = Store(str(tmp_path / "h"))
    kept, doomed = rows(2), rows(1, 2)
    store.add([*kept, *doomed])
    store.add(rows(2, 0, day=3))
    assert store.forget([row["run_key"] for row in doomed]) == 1
    assert count(store) == 4
    assert store.forget(before_day="2026-11-02") == 2
    with Database(store) as db:
        assert db.rows("SELECT DISTINCT day FROM runs") == [{"day": "2026-11-04"}]
    assert not list((tmp_path / "h").rglob(f"day={DAY}/*.parquet"))


def test_rows_hold_no_environment_memory_or_arguments() -> None:
    """A history is kept for long and read by many: what may be private in a report stays there."""
    made = report(1, command=["python", "train.py", "--token=hunter2"])
    died = (made.processes or [])[1]
    block = r.MemoryBlock(register="rsp", addr="0x1000", bytes="deadbeef")
    secret = {"environment": {"SECRET": "hunter2"}, "command": ["x", "hunter2"], "memory_blocks": [block]}
    died = msgspec.structs.replace(died, **secret)
    row = run_row(msgspec.structs.replace(made, processes=[died]))
    assert "hunter2" not in repr(row) and "deadbeef" not in repr(row)


def test_every_column_is_documented() -> None:
    """In docs/reference/history.md, fields of lists included."""
    text = (ROOT / "docs" / "reference" / "history.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)`", text))
    for field in arrow_schema():
        assert field.name in documented, field
        inner = getattr(field.type, "value_type", None)
        names = (
            {item.name for item in inner}
            if inner is not None and inner.num_fields and field.name != "labels"
            else set()
        )
        assert names <= documented, (field.name, names - documented)
