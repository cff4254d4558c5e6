"""The questions of `pytracer history`. Each is one pass of DuckDB over the columns it needs."""

from __future__ import annotations

from typing import Any

from pytracer.history.chance import binomial_tail, discoveries, poisson_tail
from pytracer.history.database import Database
from pytracer.report import history as h

#: What versions are compared by; only the minor of torch, Python and CUDA: patches are few runs each.
VERSIONS = ("torch", "driver", "cuda", "python", "commit")
_MINOR = {"torch", "python", "cuda"}
_LEAST_DEATHS = 3  # a cause below that is no trend
_TIME = "strftime({}, '%Y-%m-%dT%H:%M:%SZ')"


def totals(db: Database, store: str) -> h.History:
    """How much there is."""
    found = db.rows(
        "SELECT count(*) AS runs, count(*) FILTER (WHERE died) AS deaths, min(day) AS f, max(day) AS l FROM runs"
    )[0]
    return h.History(
        store=store, runs=found["runs"], deaths=found["deaths"], first_day=found["f"], last_day=found["l"],
        damaged=db.damaged or None,
    )  # fmt: skip


def groups(db: Database, limit: int, fingerprint: str | None = None) -> tuple[list[h.Group], int]:
    """Causes of death, the most frequent first, and how many there are.

    Args:
        db: the store.
        limit: how many.
        fingerprint: only this one, or those that begin so.
    """
    where = "WHERE starts_with(fingerprint, $1)" if fingerprint else "WHERE $1 IS NULL"
    counted = db.rows(
        f"SELECT fingerprint, count(*) AS deaths FROM deaths {where} GROUP BY 1 ORDER BY deaths DESC, fingerprint",
        [fingerprint],
    )
    chosen = [row["fingerprint"] for row in counted[:limit]]
    found = db.rows(
        f"""
        WITH hosts AS (
            SELECT fingerprint, host, count(*) AS deaths, any_value("class") AS class, min(started) AS first,
                   max(started) AS last, arg_max(run_key, started) AS latest, list(DISTINCT torch) AS torch
            FROM deaths WHERE fingerprint IN (SELECT unnest($1)) GROUP BY 1, 2
        )
        SELECT fingerprint, CAST(sum(deaths) AS BIGINT) AS deaths, any_value(class) AS class_,
               {_TIME.format("min(first)")} AS first_seen, {_TIME.format("max(last)")} AS last_seen,
               count(host) AS hosts, arg_max(host, deaths) AS host,
               max(deaths) FILTER (host IS NOT NULL) AS host_deaths,
               list_sort(list_distinct(flatten(list(torch)))) AS torch, arg_max(latest, last) AS latest,
               CAST(CAST(max(last) AS DATE) AS VARCHAR) AS day
        FROM hosts GROUP BY fingerprint ORDER BY deaths DESC, fingerprint
        """,
        [chosen],
    )
    words = _words(db, found)
    return [h.Group(**_without(row, "latest", "day"), **words.get(row["latest"], {})) for row in found], len(counted)


def seen(db: Database, fingerprint: str, host: str | None, run_key: int) -> h.Seen:
    """Earlier deaths of one cause."""
    row = db.rows(
        f"""
        SELECT count(*) AS deaths, {_TIME.format("min(started)")} AS first_seen,
               {_TIME.format("max(started)")} AS last_seen, count(DISTINCT host) AS hosts,
               count(*) FILTER (WHERE host = $2) AS on_this_host,
               list_sort(list(DISTINCT torch) FILTER (WHERE torch IS NOT NULL)) AS torch,
               arg_max(directory, started) AS directory
        FROM deaths WHERE fingerprint = $1 AND run_key != $3
        """,
        [fingerprint, host, run_key],
    )[0]
    return h.Seen(fingerprint=fingerprint, store=db.store_url, **row)


def nodes(db: Database, limit: int) -> list[h.Node]:
    """Hosts on which more deaths began than chance explains, the least likely first; then others, up to `limit`."""
    found = db.rows(
        """
        WITH total AS (
            SELECT count(*) FILTER (WHERE died) / greatest(count(*), 1) AS rate FROM runs WHERE len(nodes) > 0
        ),
        shares AS (
            SELECT unnest(nodes, recursive := true), died, list_sum([item.ranks FOR item IN nodes]) AS all_ranks
            FROM runs
        )
        SELECT host, count(*) AS runs, count(*) FILTER (WHERE culprit AND died) AS deaths,
               sum(ranks / all_ranks) * any_value(rate) AS expected
        FROM shares, total GROUP BY host
        """
    )
    likely = [poisson_tail(row["deaths"], row["expected"]) for row in found]
    outliers = discoveries(likely)
    ranked = sorted(zip(found, likely, outliers, strict=True), key=lambda item: (item[1], item[0]["host"]))[:limit]
    about = {
        row["host"]: row
        for row in db.rows(
            'SELECT host, count(DISTINCT fingerprint) AS fingerprints, mode("class") AS class_ FROM deaths '
            "WHERE host IN (SELECT unnest($1)) GROUP BY host",
            [[row["host"] for row, _, _ in ranked]],
        )
    }
    return [
        h.Node(**row, probability=chance, outlier=out, **_without(about.get(row["host"], {}), "host"))
        for row, chance, out in ranked
    ]


def changes(db: Database, by: str, limit: int) -> list[h.Change]:
    """Causes of death that became more frequent with a version than they were with the one before it.

    Versions are in the order in which they first appear in the store. The number of runs with each is that of all runs
    that were added: where only deaths are, a cause is compared with other deaths.
    """
    column = f"regexp_extract({by}, '^\\d+\\.\\d+')" if by in _MINOR else by
    used = db.rows(
        f"SELECT {column} AS version, count(*) AS runs FROM runs WHERE {by} IS NOT NULL "
        "GROUP BY 1 ORDER BY min(started)"
    )
    order = {row["version"]: number for number, row in enumerate(used)}
    counted = db.rows(
        f"""
        SELECT fingerprint, {column} AS version, count(*) AS deaths FROM deaths WHERE {by} IS NOT NULL
        GROUP BY 1, 2
        """
    )
    deaths = {(row["fingerprint"], row["version"]): row["deaths"] for row in counted}
    tried = [_compared(row, used, order, deaths) for row in counted if order[row["version"]] > 0]
    considered = [item for item in tried if item is not None]
    real = discoveries([item[0] for item in considered])
    chosen = sorted((item for item, found in zip(considered, real, strict=True) if found), key=lambda item: item[0])[
        :limit
    ]
    causes = [fields["fingerprint"] for _, fields in chosen]
    latest = db.rows(
        'SELECT fingerprint, any_value("class") AS class_, arg_max(run_key, started) AS latest, max(day) AS day '
        "FROM deaths WHERE fingerprint IN (SELECT unnest($1)) GROUP BY 1",
        [causes],
    )
    words = _words(db, latest)
    about = {row["fingerprint"]: (row["class_"], words.get(row["latest"], {}).get("summary")) for row in latest}
    return [
        h.Change(by=by, probability=chance, **fields, class_=about[cause][0], summary=about[cause][1])
        for cause, (chance, fields) in zip(causes, chosen, strict=True)
    ]


def periods(db: Database) -> list[h.Period]:
    """Runs and deaths of each day."""
    runs = db.rows(
        "SELECT day, count(*) AS runs, count(*) FILTER (WHERE died) AS deaths FROM runs GROUP BY day ORDER BY day"
    )
    classes: dict[str, dict[str, int]] = {}
    for row in db.rows('SELECT day, "class" AS name, count(*) AS n FROM deaths GROUP BY 1, 2 ORDER BY n DESC, name'):
        classes.setdefault(row["day"], {})[row["name"]] = row["n"]
    return [h.Period(**row, classes=classes.get(row["day"], {})) for row in runs]


def _compared(
    row: dict[str, Any], used: list[dict[str, Any]], order: dict[str, int], deaths: dict[tuple[str, str], int]
) -> tuple[float, dict[str, Any]] | None:
    now = used[order[row["version"]]]
    before = used[order[row["version"]] - 1]
    earlier = deaths.get((row["fingerprint"], before["version"]), 0)
    if row["deaths"] < _LEAST_DEATHS or row["deaths"] * before["runs"] <= earlier * now["runs"]:
        return None
    share = now["runs"] / (now["runs"] + before["runs"])
    chance = binomial_tail(row["deaths"], row["deaths"] + earlier, share)
    return chance, {
        "version": now["version"], "before": before["version"], "fingerprint": row["fingerprint"],
        "deaths": row["deaths"], "runs": now["runs"], "deaths_before": earlier, "runs_before": before["runs"],
    }  # fmt: skip


def _words(db: Database, latest: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The words of a few runs, by their keys. Most bytes of a store are words: only the days of these runs are read."""
    found = db.rows(
        "SELECT run_key, summary, place, directory, url FROM runs "
        "WHERE day IN (SELECT unnest($1)) AND run_key IN (SELECT unnest($2::BIGINT[]))",
        [sorted({row["day"] for row in latest}), [row["latest"] for row in latest]],
    )
    return {row.pop("run_key"): row for row in found}


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
