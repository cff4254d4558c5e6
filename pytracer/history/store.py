"""The store: Parquet files below any URL that fsspec knows, one folder per day.

    STORE/pytracer-history.json              {"format": "pytracer-history", "version": 1}
    STORE/runs/day=2026-11-23/<name>.parquet

A file appears as a whole: by rename on a local disk, by one PUT in an object store. It is named by the runs in it, so
that the same runs added twice at once become one file. Files overlap while days are compacted, and where two writers
added overlapping runs; readers then count each run once (`database.py`). Nothing is ever changed in place.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pytracer._errors import InputError, PytracerError
from pytracer._extras import library
from pytracer._objects import is_local, put
from pytracer.history.rows import SCHEMA_VERSION, Row, arrow_schema

MARKER = "pytracer-history.json"
RUNS = "runs"
_FORMAT = "pytracer-history"
_MOST_MARKER = 1 << 16
_COMPACT = "compact-"


@dataclass(frozen=True)
class Added:
    """What became of runs that were to be added."""

    new: int
    known: int


class Store:
    """One store. Reading never writes; the first `add` makes it.

    Raises, in every method:
        PytracerError: the file system refuses; the line has its reason.
    """

    def __init__(self, url: str) -> None:
        """Connects; a store need not exist yet.

        Raises:
            InputError: no file system is known for the URL, or it holds a newer version, or something else.
        """
        self.url = url
        fsspec = library("fsspec", "history")
        try:
            self.filesystem, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise InputError(
                f"{url} cannot be opened: {error}", "give --store a directory, or a URL like s3://bucket/history"
            ) from None
        self.root: str = root.rstrip("/")
        self.is_local = is_local(self.filesystem)

    def exists(self) -> bool:
        """Whether there is a store, of a version that this pytracer knows."""
        with _refusals(self.url):
            path = self._path(MARKER)
            if not self.filesystem.exists(path):
                return False
            with self.filesystem.open(path, "rb") as file:
                content = file.read(_MOST_MARKER)
        try:
            found = json.loads(content)
            known = found["format"] == _FORMAT
            version = int(found["version"])
        except (ValueError, KeyError, TypeError):
            known, version = False, 0
        if not known:
            raise InputError(f"{self.url} has a {MARKER} that is none", "give --store another place")
        if version > SCHEMA_VERSION:
            raise InputError(f"{self.url} has version {version} of the history", "install a newer pytracer to use it")
        return True

    def require(self) -> None:
        """Raises InputError where there is no store."""
        if not self.exists():
            raise InputError(f"there is no history in {self.url}", "pytracer history add RUN --store ... begins one")

    def add(self, rows: Sequence[Row]) -> Added:
        """Writes runs that the store does not have: one file for each of their days."""
        self._begin()
        new = 0
        for day, items in groupby(
            sorted(rows, key=lambda row: (row["day"], row["run_key"])), key=lambda row: row["day"]
        ):
            known = self._keys(day)
            unknown = {row["run_key"]: row for row in items if row["run_key"] not in known}
            if unknown:
                self._write(day, _name(unknown), _parquet(list(unknown.values())))
                new += len(unknown)
        return Added(new, len(rows) - new)

    def write_table(self, day: str, table: Any) -> None:
        """Writes many runs of one day, made by another program, without looking for those that are known."""
        self._begin()
        self._write(day, _name(table.column("run_key").to_pylist()), _content(table))

    def files(self) -> list[str]:
        """The paths of all Parquet files, by day and name; unfinished ones have other names."""
        with _refusals(self.url):
            self.filesystem.invalidate_cache()
            return sorted(self.filesystem.glob(self._path(RUNS, "day=*", "*.parquet")))

    def days(self) -> dict[str, list[str]]:
        """The files of each day."""
        return {day: list(paths) for day, paths in groupby(self.files(), key=_day)}

    def compact(self, *, least: int = 2) -> tuple[int, int]:
        """Makes one file of the files of each day that has at least `least`; removes what it replaced.

        A reader in between sees runs twice, and counts them once. A file that cannot be read stays, with its day.

        Returns:
            Files before and after, of the days that were compacted.
        """
        before = after = 0
        for day, paths in self.days().items():
            if len(paths) < least:
                continue
            table = self._merged(paths)
            if table is None:
                continue
            keys = dict.fromkeys(table.column("run_key").to_pylist())
            path = self._write(day, _COMPACT + _name(keys), _content(table))
            self._remove([old for old in paths if old != path])
            before, after = before + len(paths), after + 1
        return before, after

    def forget(self, keys: Iterable[int] | None = None, before_day: str | None = None) -> int:
        """Deletes runs by key, or all runs of days before `before_day`; returns how many runs went.

        A day is rewritten without the runs before its old files are removed.
        """
        gone, doomed = 0, set(keys or ())
        for day, paths in self.days().items():
            if before_day is not None and day < before_day:
                gone += len(self._keys(day))
                self._remove(paths)
            elif doomed:
                gone += self._without(day, paths, doomed)
        return gone

    def _without(self, day: str, paths: Sequence[str], doomed: set[int]) -> int:
        pa = library("pyarrow", "history")
        gone = set()
        for path in paths:
            table = self._read(path)
            held = set(table.column("run_key").to_pylist()) & doomed if table is not None else set()
            if not held or table is None:
                continue
            mask = [key not in doomed for key in table.column("run_key").to_pylist()]
            left = table.filter(pa.array(mask))
            if len(left):
                self._write(day, _name(dict.fromkeys(left.column("run_key").to_pylist())), _content(left))
            self._remove([path])
            gone |= held
        return len(gone)

    def _begin(self) -> None:
        if self.exists():
            return
        marker = json.dumps({"format": _FORMAT, "version": SCHEMA_VERSION}).encode()
        self._put(self._path(MARKER), marker)

    def _keys(self, day: str) -> set[int]:
        """The runs of a day."""
        with _refusals(self.url):
            self.filesystem.invalidate_cache()
            paths = self.filesystem.glob(self._path(RUNS, f"day={day}", "*.parquet"))
        tables = (self._read(path, ["run_key"]) for path in paths)
        return {key for table in tables if table is not None for key in table.column("run_key").to_pylist()}

    def _read(self, path: str, columns: list[str] | None = None) -> Any:
        """A file as a table; None if it cannot be read: readers name it."""
        pa, parquet = library("pyarrow", "history"), library("pyarrow.parquet", "history")
        try:
            with self.filesystem.open(path, "rb") as file:
                return parquet.ParquetFile(file).read(columns=columns)
        except FileNotFoundError:  # compacted meanwhile
            return None
        except (pa.ArrowInvalid, pa.ArrowException, OSError):
            return None

    def _merged(self, paths: Sequence[str]) -> Any:
        """All runs of the files, each once; None if one cannot be read."""
        pa, compute = library("pyarrow", "history"), library("pyarrow.compute", "history")
        tables = [self._read(path) for path in paths]
        if any(table is None for table in tables):
            return None
        table = pa.concat_tables(tables, promote_options="default")
        keys = table.column("run_key").to_pylist()
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        kept = table.take(pa.array(sorted(first.values()), pa.int64()))
        return kept.take(compute.sort_indices(kept, sort_keys=[("fingerprint", "ascending"), ("started", "ascending")]))

    def _write(self, day: str, name: str, content: bytes) -> str:
        path = self._path(RUNS, f"day={day}", f"{name}.parquet")
        self._put(path, content)
        return path

    def _put(self, path: str, content: bytes) -> None:
        with _refusals(self.url):
            put(self.filesystem, path, content)

    def _remove(self, paths: Sequence[str]) -> None:
        with _refusals(self.url):
            for path in paths:
                try:
                    self.filesystem.rm_file(path)
                except FileNotFoundError:  # another compaction was quicker
                    continue

    def _path(self, *parts: str) -> str:
        return posixpath.join(self.root, *parts)


def _parquet(rows: Sequence[Row]) -> bytes:
    pa = library("pyarrow", "history")
    schema = arrow_schema()
    return _content(pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema))


def _content(table: Any) -> bytes:
    parquet = library("pyarrow.parquet", "history")
    out = io.BytesIO()
    parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def _name(keys: Mapping[int, Any] | Iterable[int]) -> str:
    return hashlib.sha256(repr(sorted(keys)).encode()).hexdigest()[:16]


def _day(path: str) -> str:
    return posixpath.basename(posixpath.dirname(path)).removeprefix("day=")


@contextmanager
def _refusals(url: str) -> Iterator[None]:
    """Turns what a file system raises into one line: each library has errors of its own."""
    try:
        yield
    except PytracerError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PytracerError(f"{url} cannot be used: {reason}", "check the URL and the access to it") from error
