"""What the questions answer, on a fleet whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytracer.history import questions
from pytracer.history.database import Database
from pytracer.history.fingerprint import fingerprint
from pytracer.history.rows import run_key
from pytracer.history.store import Store
from tests.conditions import needs_history
from tests.support.histories import report, rows

pytestmark = needs_history


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """40,000 deaths, one bad host, one cause that torch 2.13 made more frequent."""
    pytest.importorskip("numpy")
    from tests.support.fleet import Fleet

    store = Store(str(tmp_path_factory.mktemp("fleet")))
    Fleet(40_000, 10_000, days=30).write(store)
    with Database(store) as db:
        yield db


def test_bad_host_is_named_and_no_other(fleet: Database) -> None:
    """Of 500."""
    from tests.support.fleet import BAD_HOST

    found = questions.nodes(fleet, 500)
    assert [node.host for node in found if node.outlier] == [BAD_HOST]
    assert found[0].host == BAD_HOST and (found[0].fingerprints or 0) > 20
    assert sum(node.expected or 0 for node in found) == pytest.approx(40_000, rel=1e-6)


def test_regression_is_named_and_no_other(fleet: Database) -> None:
    """Of 3,000 causes."""
    from tests.support.fleet import REGRESSION

    found = questions.changes(fleet, "torch", 10)
    assert [(item.version, item.before) for item in found] == [("2.13", "2.12")]
    assert f":{REGRESSION} in " in (found[0].summary or "")
    assert questions.changes(fleet, "python", 10) == []


def test_causes_are_counted_and_described_by_the_latest(tmp_path: Path) -> None:
    """The most frequent first."""
    store = Store(str(tmp_path))
    store.add([*rows(3), *rows(2, 10, function="validate", day=2), *rows(4, 20, clean=True)])
    with Database(store) as db:
        found, total = questions.groups(db, 1)
        every, _ = questions.groups(db, 10)
        one, _ = questions.groups(db, 10, (every[1].fingerprint or "")[:8])
    assert total == 2 and [group.deaths for group in every] == [3, 2]
    group = found[0]
    assert (group.fingerprint, group.class_) == (fingerprint(report(0)), "use-after-free")
    assert (group.first_seen, group.last_seen) == ("2026-11-01T00:00:00Z", "2026-11-01T00:00:02Z")
    assert (group.hosts, group.host, group.host_deaths, group.torch) == (1, "node1", 3, ["2.13.0+cpu"])
    assert (group.place, group.summary) == ("train.py:12 in step", "Rank 1 read freed memory.")
    assert [item.deaths for item in one] == [2]


def test_death_was_seen_before_or_not(tmp_path: Path) -> None:
    """The run that is asked about does not count."""
    store = Store(str(tmp_path))
    store.add(rows(3))
    with Database(store) as db:
        again = questions.seen(db, fingerprint(report(2)), "node1", run_key(report(2)))
        new = questions.seen(db, "f1-0000000000000000", "node1", 1)
    assert (again.deaths, again.on_this_host, again.first_seen) == (2, 2, "2026-11-01T00:00:00Z")
    assert (new.deaths, new.first_seen) == (0, None)


def test_days_without_deaths_are_there(tmp_path: Path) -> None:
    """With their runs."""
    store = Store(str(tmp_path))
    store.add([*rows(2), *rows(3, 5, clean=True, day=1)])
    with Database(store) as db:
        found = questions.periods(db)
        totals = questions.totals(db, "x")
    assert [(item.day, item.runs, item.deaths) for item in found] == [("2026-11-01", 2, 2), ("2026-11-02", 3, 0)]
    assert (totals.runs, totals.deaths, totals.first_day, totals.last_day) == (5, 2, "2026-11-01", "2026-11-02")


def test_only_some_days_are_asked_for(tmp_path: Path) -> None:
    """Files of other days are not opened."""
    store = Store(str(tmp_path))
    store.add([row for day in range(5) for row in rows(1, day, day=day)])
    with Database(store, days=("2026-11-02", "2026-11-03")) as db:
        assert [item.day for item in questions.periods(db)] == ["2026-11-02", "2026-11-03"]
    with Database(store, days=("2027-01-01", None)) as db:
        assert questions.totals(db, "x").runs == 0 and questions.groups(db, 3) == ([], 0)
        assert questions.nodes(db, 3) == [] and questions.changes(db, "torch", 3) == []
