"""The store as tables of DuckDB: runs, deaths, and what lies in lists inside a run, each run once.

Files that cannot be read are left out and named. Nothing is copied: a question reads the columns it needs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pytracer._errors import PytracerError, UsageError
from pytracer._extras import library
from pytracer.history.store import Store

#: name of the view -> its definition over `runs`
VIEWS = {
    "deaths": "SELECT * FROM runs WHERE died",
    "nodes": "SELECT run_key, day, died, unnest(nodes, recursive := true) FROM runs",
    "processes": "SELECT run_key, day, unnest(processes, recursive := true) FROM runs",
    "findings": "SELECT run_key, day, unnest(findings, recursive := true) FROM runs",
    "frames": (
        "SELECT run_key, day, generate_subscripts(frames, 1) AS position, unnest(frames, recursive := true) FROM runs"
    ),
}


class Database:
    """An in-memory DuckDB with views of a store; a context manager.

    `damaged`: files that were left out. `repeated`: whether runs lie in several files, and were counted once.
    """

    def __init__(self, store: Store, *, days: tuple[str | None, str | None] = (None, None)) -> None:
        """Opens the views.

        Args:
            store: where the runs are.
            days: first and last day to look at, ISO 8601; None for no limit.

        Raises:
            PytracerError: the store cannot be read at all.
        """
        duckdb = library("duckdb", "history")
        self._error = duckdb.Error
        self.connection: Any = duckdb.connect(":memory:")
        self.damaged: list[str] = []
        self.repeated = False
        store.require()
        if not store.is_local:
            self.connection.register_filesystem(store.filesystem)
        first, last = days
        files = [
            path
            for day, paths in store.days().items()
            if (first is None or day >= first) and (last is None or day <= last)
            for path in paths
        ]
        self._store = store
        self.store_url = store.url
        self._define(files)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The result of our own SQL, a dictionary per row."""
        cursor = self.connection.execute(sql, list(parameters))
        names = [item[0] for item in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def user_rows(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names and rows of what the user asked. It cannot change anything but this connection's memory.

        Raises:
            UsageError: DuckDB refuses it.
        """
        try:
            cursor = self.connection.execute(sql)
            if cursor.description is None:
                return [], []
            return [item[0] for item in cursor.description], cursor.fetchall()
        except self._error as error:
            first = str(error).splitlines()[0]
            raise UsageError(
                f"DuckDB refuses the question: {first}", "`--sql 'SUMMARIZE runs'` shows the columns"
            ) from error

    def _define(self, files: list[str]) -> None:
        readable = files
        try:
            self._views(readable)
        except self._error:
            # A file that was torn, or removed since it was listed. One by one: DuckDB names only the first.
            readable = [path for path in files if self._is_readable(path)]
            self.damaged = [path for path in files if path not in set(readable)]
            try:
                self._views(readable)
            except self._error as error:
                reason = str(error).splitlines()[0]
                raise PytracerError(f"{self._store.url} cannot be read: {reason}", "try again") from error

    def _views(self, files: list[str]) -> None:
        self.connection.register("no_runs", _no_runs())
        if files:
            # This reads the end of every file: a torn one is found here, not in the middle of an answer.
            reading = _reading(self._paths(files))
            # Of a column that none of the files has yet, the empty table makes nulls.
            both = f"{reading} UNION ALL BY NAME SELECT * FROM no_runs"
            self.connection.execute(f"CREATE OR REPLACE TEMP VIEW stored AS {both}")
            self.repeated = self._has_repeated(files)
        else:
            self.connection.execute("CREATE OR REPLACE TEMP VIEW stored AS SELECT * FROM no_runs")
        once = " QUALIFY row_number() OVER (PARTITION BY run_key ORDER BY added) = 1" if self.repeated else ""
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW runs AS SELECT * FROM stored{once}")
        for name, definition in VIEWS.items():
            self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {definition}")

    def _has_repeated(self, files: list[str]) -> bool:
        """A run is in one day: only the files of one day can share runs."""
        shared = [path for _, group in groupby(files, posixpath.dirname) for path in _if_several(list(group))]
        if not shared:
            return False
        count = f"SELECT count(*) != count(DISTINCT run_key) FROM ({_reading(self._paths(shared))})"
        return bool(self.connection.execute(count).fetchone()[0])

    def _is_readable(self, path: str) -> bool:
        try:
            self.connection.execute(f"SELECT count(run_key) FROM ({_reading(self._paths([path]))})").fetchall()
        except self._error:
            return False
        return True

    def _paths(self, files: Sequence[str]) -> list[str]:
        store = self._store
        return list(files) if store.is_local else [store.filesystem.unstrip_protocol(path) for path in files]


def _reading(paths: Sequence[str]) -> str:
    # An older file lacks newer columns; those are null. Paths go in as literals: a view takes no parameters.
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return (
        f"SELECT * REPLACE (CAST(day AS VARCHAR) AS day) FROM read_parquet([{listed}], hive_partitioning = true, "
        "hive_types_autocast = false, union_by_name = true)"
    )


def _if_several(paths: list[str]) -> list[str]:
    return paths if len(paths) > 1 else []


def _no_runs() -> Any:
    from pytracer.history.rows import arrow_schema

    pa = library("pyarrow", "history")
    schema = arrow_schema().append(pa.field("day", pa.string()))
    return schema.empty_table()
