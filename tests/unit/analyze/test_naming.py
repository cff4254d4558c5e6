"""Names of processes in sentences."""

from pathlib import Path

from pytracer.analyze.engine import job_view
from pytracer.analyze.naming import names_words
from pytracer.analyze.timeline.clock import RunClock
from tests.support import scenarios as s
from tests.support.synth import Box


def test_processes_beyond_the_named_ones_are_others_and_not_one_more(tmp_path: Path) -> None:
    job = s.load(tmp_path, *(Box(pid=20 + number, argv=("python", f"p{number}.py")) for number in range(6)))
    views = job_view(job, RunClock(job)).views
    assert names_words(views) == "process 20 (p0.py), process 21 (p1.py), process 22 (p2.py) and others"
    assert names_words(views, 2) == "process 20 (p0.py), process 21 (p1.py) and others"
    assert names_words(views[:3]) == "process 20 (p0.py), process 21 (p1.py) and process 22 (p2.py)"
    assert names_words(views[:1]) == "process 20 (p0.py)"
