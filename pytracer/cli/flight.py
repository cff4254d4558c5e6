"""`pytracer dump RUN --flight-recorder DIR`: the collectives of all ranks as dumps of torch's Flight Recorder."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import msgspec

from pytracer._errors import InputError, PytracerError, UsageError
from pytracer._printable import shell_command
from pytracer.decode.formats.flight_recorder_writer import flight_form, json_form
from pytracer.decode.job.merge import load_job

PICKLED, JSON = "nccl_trace_rank_{}", "rank{}.json"


def write_flight_recorder(run: str, directory: Path, *, force: bool = False) -> list[str]:
    """Writes two files per rank, a pickle for torch's analyzer and its JSON form; returns lines for the user.

    Raises:
        InputError: as `load_job`, or no rank was recorded.
        UsageError: the directory holds such files and `force` was not given.
        PytracerError: it cannot be written.
    """
    job = load_job(run, symbols=False)
    ranks = {process.rank: process for process in job.ranks}  # the last attempt's
    if not ranks:
        raise InputError(f"{run} has no ranks", "Flight Recorder dumps are made for ranks only")
    taken = [p for p in directory.glob("*") if p.name.startswith("nccl_trace_rank_")] if directory.is_dir() else []
    if taken and not force:
        raise UsageError(f"{directory} holds dumps", "overwrite them with --force, or choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in taken:
            path.unlink()
        for rank, process in ranks.items():
            form = flight_form(process)
            _write(directory / PICKLED.format(rank), pickle.dumps(form, protocol=2))
            _write(directory / JSON.format(rank), msgspec.json.encode(json_form(form)))
    except OSError as error:
        raise PytracerError(f"{directory} cannot be written: {error.strerror}", "choose another directory") from error
    command = shell_command("python", "-m", "torch.distributed.flight_recorder.fr_trace", str(directory))
    lines = [f"{directory}: {len(ranks)} ranks; `{command}`"]
    missing = job.unrecorded_ranks
    if missing:
        words = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        lines.append(f"no black box of ranks {words}: torch's analyzer wants --allow-incomplete-ranks")
    return lines


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    os.replace(aside, path)
