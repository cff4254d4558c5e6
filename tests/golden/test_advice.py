"""The advice for schedulers on the recordings of released versions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytracer.analyze.advice import advise
from pytracer.report.job import Report
from tests.golden.reports import GOLDEN, report_of, unpacked

EXPECTED = {
    "aarch64-ddp-use-after-free": "STOP",
    "collective-mismatch": "STOP",
    "ddp-use-after-free": "STOP",
    "fault-on-thread": "STOP",
    "fsdp2": "UNKNOWN",  # the verdict itself is unknown
    "guard-use-after-free": "STOP",
    "illegal-instruction": "UNKNOWN",  # another processor may have the instruction
    "null-in-step": "UNKNOWN",  # possible only
    "out-of-bounds": "UNKNOWN",  # IndexError: the input may differ
    "released-in-collective": "STOP",
    "sigkill": "RESTART",
    "slow-cleanup": "UNKNOWN",  # ValueError of data
    "stack-overflow": "STOP",
    "stale-grad": "STOP",
    "storage-swapped": "STOP",
    "truncated-mapping": "UNKNOWN",  # the file may be whole the next time
    "worker-fault": "STOP",
}


def test_every_recording_has_an_expected_advice() -> None:
    """Also the ones that are added."""
    assert {path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*/*.tar.xz")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_advice_on_a_recording(name: str, tmp_path: Path) -> None:
    """From the stored recording to the answer; STOP rests on a certain finding."""
    (archive,) = GOLDEN.glob(f"*/{name}.tar.xz")
    report = msgspec.json.decode(report_of(unpacked(archive, tmp_path)), type=Report)
    answer = advise(report)
    assert answer.advice == EXPECTED[name]
    if answer.advice == "STOP":
        assert report.verdict is not None
        assert report.verdict.confidence == "certain"
        assert answer.finding is not None
