"""What `pytracer history` answers, as plain data. As in `job.py`: keys may be added, never renamed."""

from __future__ import annotations

from pytracer.report.process import Part

SCHEMA = "pytracer-history"
VERSION = 1


class Group(Part, frozen=True, rename={"class_": "class"}):
    """Deaths with one fingerprint."""

    fingerprint: str | None = None
    deaths: int | None = None
    class_: str | None = None
    summary: str | None = None  #: headline of the latest one
    place: str | None = None  #: its Python line
    first_seen: str | None = None  #: wall-clock start of the run, ISO 8601, UTC
    last_seen: str | None = None
    hosts: int | None = None  #: different hosts of the culprits
    host: str | None = None  #: the most frequent one
    host_deaths: int | None = None  #: on `host`
    torch: list[str] | None = None  #: versions, oldest first
    directory: str | None = None  #: of the latest run
    url: str | None = None  #: of its report, if it was given


class Node(Part, frozen=True, rename={"class_": "class"}):
    """A host, and how often a death began on it."""

    host: str | None = None
    runs: int | None = None  #: that it took part in
    deaths: int | None = None  #: that began on one of its ranks
    #: if every rank of every run were equally likely to be the first to die, as often as ranks die in this store
    expected: float | None = None
    probability: float | None = None  #: of `deaths` or more, by Poisson's distribution with that mean
    #: more often than chance: at most 5 % of the hosts named so are expected to be none (Benjamini-Hochberg)
    outlier: bool | None = None
    fingerprints: int | None = None  #: different ones among its deaths; one alone points at a program, many at the host
    class_: str | None = None  #: the most frequent


class Change(Part, frozen=True, rename={"class_": "class"}):
    """A cause of death that became more frequent with a version."""

    by: str | None = None  #: "torch", "driver", "cuda", "python" or "commit"
    version: str | None = None
    before: str | None = None  #: the version used before it
    fingerprint: str | None = None
    class_: str | None = None
    summary: str | None = None
    deaths: int | None = None  #: with `version`
    runs: int | None = None  #: with `version`, of any end
    deaths_before: int | None = None  #: with `before`
    runs_before: int | None = None
    #: of `deaths` or more among both, if the version did not matter (binomial test)
    probability: float | None = None


class Period(Part, frozen=True):
    """Runs of one day."""

    day: str | None = None
    runs: int | None = None
    deaths: int | None = None
    classes: dict[str, int] | None = None  #: deaths by class


class History(Part, frozen=True):
    """An answer: only what was asked for is not null."""

    schema: str = SCHEMA
    version: int = VERSION
    store: str | None = None
    runs: int | None = None
    deaths: int | None = None
    first_day: str | None = None
    last_day: str | None = None
    damaged: list[str] | None = None  #: files that could not be read, and were left out
    groups: list[Group] | None = None  #: the most frequent first
    groups_total: int | None = None
    nodes: list[Node] | None = None  #: the least likely first
    changes: list[Change] | None = None  #: the least likely first
    periods: list[Period] | None = None  #: by day


class Seen(Part, frozen=True):
    """What the history has of a death that is being reported."""

    fingerprint: str | None = None
    deaths: int | None = None  #: earlier ones, this run not counted
    first_seen: str | None = None
    last_seen: str | None = None
    hosts: int | None = None
    on_this_host: int | None = None
    torch: list[str] | None = None
    directory: str | None = None  #: of the latest one
    store: str | None = None  #: the history that was asked
