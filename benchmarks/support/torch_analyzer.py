"""torch's own analyzer, torchfrtrace, on the collectives of a large job: dumps of its Flight Recorder, one per rank."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pytracer.decode.formats.digest_reader import decode_digest
from pytracer.decode.formats.flight_recorder_writer import flight_form

LIMIT_SECONDS = 900
LIMIT_BYTES = 16 << 30


@dataclass(frozen=True)
class Analyzed:
    """One run. `end`: "ended well", or how it ended instead; `says`: the last line that it printed."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    dump_bytes: int
    end: str
    says: str


def write_dumps(digests: Path, folder: Path) -> int:
    """Writes the dumps of all ranks of all digests; their bytes."""
    folder.mkdir()
    nbytes = 0
    for file in digests.iterdir():
        for process in decode_digest(file.read_bytes(), file.name).job.ranks:
            content = pickle.dumps(flight_form(process), protocol=2)
            nbytes += len(content)
            (folder / f"nccl_trace_rank_{process.rank}").write_bytes(content)
    return nbytes


def analyze(folder: Path, nbytes: int) -> Analyzed:
    """Runs it within limits of time and memory: it reads all dumps before it compares them."""
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
    output = folder.parent / "torchfrtrace.txt"
    since = time.monotonic()
    with output.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, preexec_fn=_limit)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
    end = "ended well" if child.returncode == 0 else f"ended with {child.returncode}"
    cpu = usage.ru_utime + usage.ru_stime
    return Analyzed(time.monotonic() - since, cpu, usage.ru_maxrss * 1024, nbytes, end, lines[-1] if lines else "")


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
