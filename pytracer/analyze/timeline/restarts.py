"""A run of several attempts, or of several jobs in turn: each is judged alone, and the last one is the verdict.

Processes outside of attempts - the agents - live through all of them. They may be the parents that rules look for, but
their own end belongs to the last attempt only.
"""

from __future__ import annotations

from dataclasses import replace

from pytracer.decode.job.identity import restart_count
from pytracer.decode.types.snapshot import Job, Process


def last_attempt(job: Job) -> int | None:
    """The number of the last attempt; None when nothing was restarted."""
    found = {process.attempt for process in job.processes if process.attempt is not None}
    return max(found) if len(found) > 1 else None


def split_attempts(job: Job) -> tuple[tuple[int | None, Job], ...]:
    """The job of each attempt with its number, the one that counts last; the whole job when nothing was restarted."""
    last = last_attempt(job)
    if last is None:
        return ((None, job),)
    numbers = sorted({process.attempt for process in job.processes if process.attempt is not None})
    return tuple((number, _only(job, number, number == last)) for number in numbers)


def restarted(job: Job) -> tuple[int, ...]:
    """The attempts before the last one, in order, whose workers torchrun replaced by the next ones' until the last.

    Not the jobs of a sequence: each torchrun counts its restarts from 0.
    """
    counts: dict[int, int] = {}
    for process in job.processes:
        count = restart_count(process.snapshot.environment)
        if process.role == "rank" and process.attempt is not None and count is not None:
            counts[process.attempt] = max(count, counts.get(process.attempt, 0))
    found: list[int] = []
    for number in sorted(counts, reverse=True):
        if found and counts[number] >= counts[found[-1]]:
            break
        found.append(number)
    return tuple(reversed(found[1:]))


def beside_the_last(job: Job) -> tuple[int, ...]:
    """The attempts that are jobs of their own and ran at the same time as the last one: one directory, several jobs."""
    spans: dict[int, tuple[int, int]] = {}
    for process in job.processes:
        if process.role != "rank" or process.attempt is None:
            continue
        box = process.snapshot
        last_ns = process.ended_mono_ns or box.last_mono_ns or box.created_mono_ns
        begin, end = box.created_wall_ns, box.created_wall_ns + last_ns - box.created_mono_ns
        first, last = spans.get(process.attempt, (begin, end))
        spans[process.attempt] = (min(first, begin), max(last, end))
    if len(spans) < 2:
        return ()
    begin = spans[max(spans)][0]
    mine = restarted(job)
    return tuple(number for number in sorted(spans)[:-1] if number not in mine and spans[number][1] > begin)


def _only(job: Job, number: int, is_last: bool) -> Job:
    kept = [process for process in job.processes if process.attempt in (None, number)]
    seen = (process if is_last or process.attempt == number else _alive(process) for process in kept)
    return replace(job, processes=tuple(seen))


def _alive(process: Process) -> Process:
    return replace(
        process,
        snapshot=replace(process.snapshot, crash=None),
        status_kind="running", exit_code=None, signal=None, reported_by=None, ended_mono_ns=None,
        running_mono_ns=None, exception=None, exception_mono_ns=None,
    )  # fmt: skip
