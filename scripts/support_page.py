"""The page docs/reference/support.md, from the results of scripts/support_matrix.py."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FACTS = {
    "crash": "the exit status is that of SIGSEGV, and the report has the signal and the native stack",
    "Python lines": "the frame that called into native code has its line",
    "storages": "the freed storage at the fault address is found, with the lines that allocated and freed it",
    "nodes": "the autograd node that ran is named",
    "collectives": "the all-reduce of a bucket is listed, with its buffer",
    "buckets": "the address is resolved to the bucket of DDP and to the parameter in it",
    "names": "the storage has the name of the gradient",
    "verdict": "use-after-free, *certain*",
    "saved tensors": "an activation that only the autograd graph holds is named by the node that saved it",
}
HEALTHY = "healthy run as untraced"
TIER_1 = (("2.11", "2.12", "2.13", "2.14", "2.15"), ("3.11", "3.12", "3.13", "3.14"))

PAGE = """# What is supported

<!-- Written by `make matrix ARGS='--write docs/reference/support.md'`. -->

Nothing here is inferred: each cell is a run of one wheel file, which pip installed without a compiler beside that torch
under that CPython.

- **Tier 1** must have everything: torch {torches} under CPython {pythons}, wherever PyPI has the torch.
- **Tier 2** may lack a part, which its cell names: torch 2.9 and 2.10, CPython 3.10, processes that
  may not use ptrace.
- **Tier 3** is the core level: signal, native stacks, Python stacks, exit status, who died first, and no tensors. Every
  other process has it: torch for ROCm or XPU, a torch without hooks (`pytracer build` compiles them), free-threaded
  CPython (without Python stacks), programs without torch.

## Results

{table}

*ok*: the job printed what it prints untraced, and the report of its death has all that is listed below, also where
ptrace is refused. *core*: the core level. *-*: not tried, for the reason below. Anything else names what is missing.

{reasons}

The job (`scripts/support_job.py`) trains three steps with DDP over gloo, one rank on the CPU, and reads a gradient in a
bucket that DDP has released. The report must have:

{facts}

Torches for CUDA ran on the CPU, without NVIDIA's packages: this page says nothing about GPUs
([guide](../guide/gpu.md)).

## Hooks

What each hook of the wheel's libraries said when it was installed, by version of torch, at level `default`. "-": it
found what it needs.

{hooks}

{notes}

## How it was run

    make matrix ARGS='{arguments}'

{wheel}, {size:.1f} MB, sha256 `{digest}`. {machine}

| CPython | C library | where | installed in | date |
| ------- | --------- | ----- | ------------ | --- |
{places}
"""


def mark(result: dict[str, Any]) -> str:
    """One cell."""
    if "not_tried" in result:
        return "-"
    missing = result["missing"]
    if not missing:
        lost = result["without_ptrace"]
        return f"ok; without ptrace no {', '.join(lost)}" if lost else "ok"
    if "crash" in missing or HEALTHY in missing:
        return f"FAILED: {', '.join(missing)}"
    if any("torch hooks are not installed" in note for note in result["notes"]):
        return "core"
    return f"without {', '.join(missing)}"


def page(results: dict[str, Any], wheel: Path, digest: str, releases: Sequence[str]) -> str:
    """The whole page."""
    pythons = sorted({key.split()[0] for key in results}, key=_order)
    torches = sorted({key.split()[1] for key in results} | set(releases), key=_order)
    rows = [
        [version, *(mark(results.get(f"{python} {version}", {"not_tried": ""})) for python in pythons)]
        for version in torches
    ]
    return PAGE.format(
        torches=f"{TIER_1[0][0]} to {TIER_1[0][-1]}",
        pythons=f"{TIER_1[1][0]} to {TIER_1[1][-1]}",
        table=_table(["torch", *(f"CPython {python}" for python in pythons)], rows),
        reasons=_reasons(results, pythons, torches),
        facts="\n".join(f"- {name}: {says};" for name, says in FACTS.items()).rstrip(";") + ".",
        hooks=_hooks(results, torches),
        notes=_notes(results),
        arguments="--python [CHROOT:]PROGRAM ... --write docs/reference/support.md",
        wheel=f"`{wheel.name}`",
        size=wheel.stat().st_size / 1e6,
        digest=digest,
        machine=f"On {os.uname().machine}, Linux {os.uname().release.split('-')[0]}.",
        places="\n".join(_places(results, pythons)),
    )


def _order(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.rstrip("t").split(".")) + (text.endswith("t"),)


def _reasons(results: dict[str, Any], pythons: Sequence[str], torches: Sequence[str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for python in pythons:
        for version in torches:
            result = results.get(f"{python} {version}", {"not_tried": "not run"})
            if "not_tried" in result:
                by_reason.setdefault(result["not_tried"], []).append(f"{version} under {python}")
    for python in TIER_1[1]:
        if python not in pythons:
            by_reason.setdefault("not run, no such CPython was given", []).append(f"every torch under {python}")
    return "\n".join(f"- {reason}: {', '.join(cells)}." for reason, cells in by_reason.items())


def _hooks(results: dict[str, Any], torches: Iterable[str]) -> str:
    columns = {}
    for version in torches:
        found = [result for key, result in results.items() if key.split()[1] == version and result.get("hooks")]
        if found:
            columns[version] = [dict(result["hooks"]) for result in found]
    names = list(dict.fromkeys(name for column in columns.values() for hooks in column for name in hooks))
    rows = []
    for name in names:
        said = [sorted({hooks.get(name, "absent") or "-" for hooks in column}) for column in columns.values()]
        rows.append([name, *(" / ".join(words) for words in said)])
    return _table(["hook", *columns], rows)


def _notes(results: dict[str, Any]) -> str:
    by_note: dict[str, list[str]] = {}
    for key, result in results.items():
        for note in dict.fromkeys(result.get("notes", [])):
            python, version = key.split()
            by_note.setdefault(note, []).append(f"{version} under {python}")
    if not by_note:
        return "No report had a note about something that could not be recorded."
    return "Notes in reports:\n\n" + "\n".join(f"- {note} ({', '.join(cells)})" for note, cells in by_note.items())


def _places(results: dict[str, Any], pythons: Sequence[str]) -> list[str]:
    lines = []
    for python in pythons:
        of_python = [result for key, result in results.items() if key.split()[0] == python]
        result = of_python[-1]
        where = "a chroot" if result["chroot"] else "this machine"
        seconds = f"{result['install_seconds']} s" if "install_seconds" in result else "-"
        lines.append(f"| {result['python']} | {result['libc']} | {where} | {seconds} | {result['date']} |")
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
