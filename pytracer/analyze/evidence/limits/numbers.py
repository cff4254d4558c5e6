"""The limits of a process and how much of each it used, as its exception's recorder or the launcher noted them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pytracer.decode.types.host_counters import SeenProcess
from pytracer.report.job import VariableReport

ADDRESS_SPACE, DATA, MAPPINGS = "address space", "data", "mappings"
FILES, FILE_SIZE, CPU = "open files", "file size", "cpu seconds"
USER_THREADS, PIDS, STACK = "threads of the user", "pids of the cgroup", "stack"


class Numbers(msgspec.Struct, frozen=True):
    """By name. `files`, `threads`: how many are of the commonest kind, and which."""

    values: dict[str, int]
    files: tuple[int, str] | None = None
    threads: tuple[int, str] | None = None

    def limit(self, name: str) -> int | None:
        """The soft one; None for none."""
        return self.values.get(f"limit {name}")

    def hard(self, name: str) -> int | None:
        """Where it is another one than the soft limit."""
        return self.values.get(f"hard limit {name}")

    def used(self, name: str) -> int | None:
        """How much of it was in use."""
        return self.values.get(f"used {name}")


def recorded_numbers(variables: Iterable[VariableReport] | None) -> Numbers | None:
    """What the recorder wrote beside the variables of the line; None for an exception of another kind."""
    texts = {item.name: item.value for item in variables or () if item.name and item.value}
    values = {name: int(text) for name, text in texts.items() if text.isascii() and text.isdecimal() and " " in name}
    if not any(name.startswith("limit ") for name in values):
        return None
    return Numbers(values, _counted(texts.get("open files like")), _counted(texts.get("threads like")))


def seen_numbers(seen: SeenProcess | None) -> Numbers:
    """What the launcher last saw of a process."""
    values: dict[str, int] = {}
    for name, (soft, hard) in ((seen.limits if seen is not None else None) or {}).items():
        if soft is not None:
            values[f"limit {name}"] = int(soft)
        if hard is not None and hard != soft:
            values[f"hard limit {name}"] = int(hard)
    if seen is not None and seen.address_space is not None:
        values[f"used {ADDRESS_SPACE}"] = int(seen.address_space)
    return Numbers(values)


def _counted(text: str | None) -> tuple[int, str] | None:
    count, _, what = (text or "").partition(" ")
    what = what.removesuffix(" (deleted)")
    return (int(count), what) if count.isascii() and count.isdecimal() and what else None
