"""The core redacts as blackbox/redaction.py does; a real process leaves no secret in its recording."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytracer.blackbox.redaction import redact_bytes
from pytracer.decode.recording.reader import read_box
from pytracer.decode.types.journal import SeenSignal, select
from pytracer.decode.types.snapshot import Snapshot
from tests.conditions import needs_core
from tests.support.cli import clean_environment
from tests.support.crash import CORE
from tests.support.secrets import HIDDEN, PLAIN, PROGRAMS, SECRET

pytestmark = needs_core
Redact = Callable[[Sequence[bytes]], tuple[list[bytes], int]]

PIECES = tuple(
    b"""password token api key Key secret auth pass pwd max pad no sig x - -- _ . = : :// / @ ? & , ; ' " \\ [ ] { -c +
    ~ 1 KEY PassWord 2 db +x connection string *** sk- ghp_ xoxb- PRIVATE -----BEGIN""".split()
) + (b" ", b"\n", b"\xff", b"bearer ", b"Basic ", b"Authorization: ", b"aB3" * 12, b"eyJ" + b"a" * 12, b"a" * 17,
     b"0123456789abcdef" * 2, b"PRIVATE KEY-----", b"-----BEGIN ")  # fmt: skip
WORDS = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def redact(built: Path) -> Redact:
    """csrc/crashsafe/text/redact.cpp by itself."""
    call = ctypes.CDLL(str(built / "libredact.so")).testing_redact
    call.restype = ctypes.c_size_t

    def run(words: Sequence[bytes]) -> tuple[list[bytes], int]:
        data = b"".join(word + b"\0" for word in words)
        guarded = ctypes.create_string_buffer(data + b"#" * 64, len(data) + 64)
        count = ctypes.c_uint32()
        left = call(guarded, ctypes.c_size_t(len(data)), ctypes.byref(count))
        assert left <= len(data)
        assert guarded.raw[len(data) :] == b"#" * 64
        return guarded.raw[:left].split(b"\0")[:-1], count.value

    return run


@pytest.mark.slow
@given(words=WORDS)
@settings(max_examples=3000, deadline=None)
@example(words=[b"curl", b"-u", b"a:b", b"-uc"])
@example(words=[b"x", b"ab=password=a"])
@example(words=[b"-----BEGIN \nAuthorization: PRIVATE KEY-----"])
def test_both_sides_redact_alike(redact: Redact, words: list[bytes]) -> None:
    """Words composed of every fragment that the redaction recognizes."""
    assert redact(words) == redact_bytes(words)


@pytest.mark.parametrize("lines", [[given for given, _ in HIDDEN], PLAIN, [given for given, _ in PROGRAMS]])
def test_corpus_is_redacted_alike(redact: Redact, lines: Sequence[Sequence[str]]) -> None:
    """Every line of the corpus."""
    for line in lines:
        words = [os.fsencode(word) for word in line]
        assert redact(words) == redact_bytes(words)
        assert redact([b"python", *words]) == redact_bytes([b"python", *words])


WAIT = "import time; print('ready', flush=True); time.sleep(60)"


def traced(run: Path, *command: str, **variables: str) -> Snapshot:
    """The recording of a process that exits normally."""
    environment = clean_environment(PYTRACER_DIR=str(run), PYTRACER_LAUNCHER="1", LD_PRELOAD=str(CORE), **variables)
    before = set(run.glob("boxes/*"))
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=60)
    (path,) = set(run.glob("boxes/*")) - before
    return read_box(path)


def test_command_line_of_a_real_process_is_redacted(tmp_path: Path) -> None:
    """From process start; the file contains none of the secrets."""
    words = [word for line, _ in HIDDEN for word in line]
    box = traced(tmp_path / "run", "/bin/echo", *words)
    expected, count = redact_bytes([os.fsencode(word) for word in ["/bin/echo", *words]])
    assert box.argv == tuple(os.fsdecode(word) for word in expected)
    assert box.counts["redacted"] == count > 30
    assert SECRET.encode() not in Path(box.path).read_bytes()


def test_environment_is_recorded_by_exact_names(tmp_path: Path) -> None:
    """Not by prefix; and a password in the value of a recorded one is replaced, too."""
    variables = {"SLURM_JWT": SECRET, "PMIX_SECURITY_MODE": SECRET, "NCCL_MY_TOKEN": SECRET, "TORCH_SECRET": SECRET}
    kept = {"SLURM_JOB_ID": "7", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1", "RANK": "0", "PMIX_RANK": "3"}
    address = {"NCCL_COMM_ID": f"tcp://u:{SECRET}@h:1"}
    box = traced(tmp_path / "run", "/bin/true", **variables, **kept, **address, RANKS="x", NCCL="x", NCCL_DEBUGX="x")
    assert kept.items() <= box.environment.items()
    assert box.environment["NCCL_COMM_ID"] == "tcp://u:***@h:1"
    assert not (variables.keys() | {"RANKS", "NCCL", "NCCL_DEBUGX"}) & box.environment.keys()
    assert box.counts["redacted"] == 1
    assert SECRET.encode() not in Path(box.path).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGABRT])
def test_command_line_of_a_sender_is_redacted(tmp_path: Path, number: int) -> None:
    """The sender of SIGTERM or of a fatal signal; it is read while the process dies."""
    environment = clean_environment(PYTRACER_DIR=str(tmp_path), PYTRACER_LAUNCHER="1", LD_PRELOAD=str(CORE))
    victim = subprocess.Popen([sys.executable, "-S", "-c", WAIT], env=environment, stdout=subprocess.PIPE)
    assert victim.stdout is not None
    with victim.stdout:
        victim.stdout.readline()
    code = "import os, sys; os.kill(int(sys.argv[1]), int(sys.argv[2])); sys.stdin.read()"
    command = [sys.executable, "-S", "-c", code, str(victim.pid), str(int(number)), f"--api-key={SECRET}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE):  # lives until its standard input is closed
        assert victim.wait(60) == -number
    (path,) = tmp_path.glob("boxes/*")
    box = read_box(path)
    seen = [fact.data.sender_command for fact in select(box.facts, SeenSignal)]
    sender = box.crash.sender_command if box.crash is not None else seen[-1]
    assert sender[-1] == "--api-key=***"
    assert box.counts["redacted"] == 1
    assert SECRET.encode() not in path.read_bytes()
