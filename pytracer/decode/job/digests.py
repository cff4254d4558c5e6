"""A job from the digests of its nodes: read in parallel, a few at a time, and merged as run directories are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pytracer._errors import InputError
from pytracer._garbage import without_collections
from pytracer._objects import files_in, is_url, read_whole
from pytracer.decode.files import read_regular
from pytracer.decode.formats.digest import LARGEST, Digest, last_calls
from pytracer.decode.formats.digest_reader import DigestReader
from pytracer.decode.job.digest_names import SUFFIX
from pytracer.decode.job.identity import job_keys
from pytracer.decode.job.load import dumps_in, joined, with_dumps
from pytracer.decode.job.merge import Progress
from pytracer.decode.types.snapshot import Damage, Job, Snapshot

_AT_ONCE = 16  # files that are read at the same time: what a store far away needs
_IN_ALL = 1 << 17  # collectives that are kept of all ranks together, beside the open ones and the last of each group
_LEAST = 16  # of each rank


def load_digests(
    paths: Sequence[str],
    recordings: Sequence[str] = (),
    progress: Progress | None = None,
    dumps: Sequence[Path] = (),
) -> Job:
    """The job that the digests are of.

    Args:
        paths: digests, or folders of them; paths or URLs.
        recordings: run directories, or folders or URLs that hold recordings: those of suspects are read.
        progress: called with (digests read, digests in all).
        dumps: dumps of torch's Flight Recorder, or directories of them.

    Raises:
        InputError: there is none, or none of them can be read; or one of the `dumps` does not exist.
    """
    flight = dumps_in(dumps)
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise InputError(f"there is no digest in {paths[0]}", "`pytracer digest RUN -o FOLDER` writes one")
    damage: list[Damage] = []
    digests: list[tuple[str, Digest]] = []
    errors: list[InputError] = []
    with without_collections():
        for done, (name, found) in enumerate(_read(files), 1):
            if isinstance(found, InputError):
                errors.append(found)
                damage.append(Damage(os.path.basename(name), 0, Exception.__str__(found)))
            else:
                digests.append((name, found))
            if progress is not None:
                progress(done, len(files))
        if not digests:
            raise errors[0]
        kept = _of_one_job(digests, damage)
        # Of two digests of one node, the later one knows more.
        kept.sort(key=lambda item: -_last_moment(item[1].job))
        job = joined([(name, item.job) for name, item in kept])
    job = replace(
        job,
        directory=paths[0] if is_url(paths[0]) else os.path.realpath(paths[0]),
        directories=(),
        damage=(*job.damage, *damage),
        digests=len(kept),
        recordings=tuple(recordings),
    )
    return with_dumps(job, flight) if flight else job


def _files(path: str) -> list[str]:
    if is_url(path):
        found = files_in(path, SUFFIX)
        return [path] if found is None else found
    if not os.path.isdir(path):
        return [path]
    try:
        return [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(SUFFIX)]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check its permissions") from None


def _read(files: Sequence[str]) -> Iterator[tuple[str, Digest | InputError]]:
    """In the order of the files, which are read ahead; never more of them in memory than are read at once."""
    reader = DigestReader(_IN_ALL, _LEAST)
    waiting = iter(files)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ahead = deque((file, pool.submit(_content, file)) for file in islice(waiting, _AT_ONCE))
        while ahead:
            file, content = ahead.popleft()
            try:
                found: Digest | InputError = reader.read(content.result(), _name(file))
            except InputError as error:
                found = error
            ahead.extend((file, pool.submit(_content, file)) for file in islice(waiting, 1))
            yield file, found


def _content(file: str) -> bytes:
    try:
        return read_whole(file, LARGEST) if is_url(file) else read_regular(file, LARGEST, follow=True)
    except OSError as error:
        raise InputError(f"{_name(file)} cannot be read: {error.strerror}", "check the path") from None


def _name(file: str) -> str:
    return file if is_url(file) else os.path.basename(file)


def _of_one_job(digests: Iterable[tuple[str, Digest]], damage: list[Damage]) -> list[tuple[str, Digest]]:
    """Those of the job with the most ranks; others are named."""
    by_job: dict[frozenset[str], list[tuple[str, Digest]]] = {}
    for item in digests:
        keys = frozenset(key for process in item[1].job.ranks for key in job_keys(process.snapshot.environment))
        by_job.setdefault(keys, []).append(item)
    unnamed = by_job.pop(frozenset(), [])
    if not by_job:
        return unnamed
    groups: list[tuple[set[str], list[tuple[str, Digest]]]] = []
    for keys, items in by_job.items():
        same = next((group for group in groups if group[0] & keys), None)
        if same is None:
            groups.append((set(keys), list(items)))
        else:
            same[0].update(keys)
            same[1].extend(items)
    groups.sort(key=lambda group: -sum(len(item.job.ranks) for _, item in group[1]))
    for names, items in groups[1:]:
        for name, _ in items:
            damage.append(Damage(os.path.basename(name), 0, f"it is of another job, {min(names)}, and is left out"))
    return [*groups[0][1], *unnamed]


def _last_moment(job: Job) -> int:
    """Wall-clock time of the last record."""
    moments = (
        item.snapshot.created_wall_ns + (item.snapshot.last_mono_ns or 0) - item.snapshot.created_mono_ns
        for item in job.processes
    )
    return max(moments, default=0)


def last_collectives(snapshot: Snapshot, most: int) -> Snapshot:
    """Without the early ones that were completed, see `last_calls`."""
    kept = last_calls(snapshot.collectives, most, lambda item: item.state != "completed", lambda item: item.group)
    return replace(snapshot, collectives=tuple(kept))
