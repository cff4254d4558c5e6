"""Homes and cells, as homes.toml and cells.toml have them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
NO_RANK = -1
USUAL = ("fault", "kill", "exception", "desync", "hang", "worker")
DEATHS = (*USUAL, "oom")


@dataclass(frozen=True)
class Home:
    """Where training runs; homes.toml explains the fields."""

    name: str
    title: str
    command: str
    way: str = "launcher"
    environment: str | None = None
    service: str | None = None
    needs: tuple[str, ...] = ()
    deaths: tuple[str, ...] = USUAL
    quick: tuple[str, ...] = ()
    limited: tuple[str, ...] = ("hang",)
    healthy: bool = True
    volume: bool = False
    unlike: tuple[str, ...] = ()
    level: str = "job"
    signal_once: bool = False
    limit_gib: int | None = None
    variables: dict[str, str] = field(default_factory=dict, hash=False)

    def words(self, trace: list[str], limit: list[str], places: dict[str, str]) -> list[str]:
        """The command, with `pytracer run` and a time limit where they belong."""
        text = self.command
        if "{limit}" not in text:
            text = "{limit} " + text
        if "{trace}" not in text:
            text = "{trace} " + text
        return shlex.split(text.format(trace=shlex.join(trace), limit=shlex.join(limit), **places))


@dataclass(frozen=True)
class Cell:
    """One death in one home, and what its report must have."""

    home: Home
    death: str
    truth: str
    classes: tuple[str, ...]
    headline: tuple[str, ...]
    next: tuple[str, ...] = ()
    rank: int | None = None
    role: str | None = None
    line: str | None = None
    xfail: str | None = None

    def __str__(self) -> str:
        return f"{self.home.name}-{self.death}"

    @property
    def place(self) -> str | None:
        """File and line of the death, as reports write it."""
        if not self.line:
            return None
        lines = (PROGRAMS / self.line).read_text(encoding="utf-8").splitlines()
        found = [n for n, text in enumerate(lines, 1) if re.search(rf"# {self.death}\b", text)]
        assert len(found) == 1, f"{self.line} has {len(found)} lines with the comment {self.death!r}"
        return f"{self.line}:{found[0]}"


def _tuple(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _homes() -> tuple[Home, ...]:
    entries: list[dict[str, Any]] = msgspec.toml.decode((HERE / "homes.toml").read_bytes())["home"]
    lists = ("needs", "deaths", "quick", "limited", "unlike")
    for entry in entries:
        entry |= {key: _tuple(entry[key]) for key in lists if key in entry}
    homes = (Home(**entry) for entry in entries)
    return tuple(replace(home, deaths=(*home.deaths, "oom")) if home.limit_gib is not None else home for home in homes)


def _cells() -> tuple[Cell, ...]:
    data = msgspec.toml.decode((HERE / "cells.toml").read_bytes())
    own = {(entry["home"], entry["death"]): entry for entry in data.get("cell", [])}
    assert len(own) == len(data.get("cell", [])), "a cell has two entries"
    cells = []
    for home in HOMES:
        for death in home.deaths:
            entry: dict[str, Any] = {**data["death"][death], **own.pop((home.name, death), {})}
            kept = {k: v for k, v in entry.items() if k not in ("home", "death", "class", "headline", "next")}
            if kept.get("rank") == NO_RANK:
                del kept["rank"]
            kept["classes"] = _tuple(entry["class"])
            kept |= {k: _tuple(entry.get(k, ())) for k in ("headline", "next")}
            cells.append(Cell(home, death, **kept))
    assert not own, f"cells of no home: {list(own)}"
    return tuple(cells)


HOMES = _homes()
CELLS = _cells()
