"""Two torchrun agents as two nodes: each with a directory of its own, and only an object store between them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conditions import needs_core, needs_native
from tests.distributed.jobs import agents
from tests.distributed.scenarios import Scenario
from tests.integrations.test_object_store import bucket, server
from tests.support.cli import only_line, pytracer
from tests.support.crash import environment

__all__ = ["bucket", "server"]
pytestmark = [needs_core, needs_native]
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")


def test_two_agents_with_only_a_bucket_between_them_give_one_verdict(bucket: str, tmp_path: Path) -> None:
    """Each launcher writes the digest of its node; the recordings are gone when the report is made."""
    scenario = Scenario("deaths", "segfault_in_backward", "rank 3 faulted", (3,), ranks=4, start="agents", victim=3)
    store = {name: os.environ[name] for name in VARIABLES}
    jobs = []
    for node, command in enumerate(agents(scenario)):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        words = [sys.executable, "-m", "pytracer", "run", "-o", "run", "--digest", bucket, "--", *command]
        env = environment(VICTIM="3", **store)
        jobs.append(subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE, text=True))
    said = [job.communicate(timeout=240)[1] for job in jobs]
    assert all(job.returncode for job in jobs), said
    for node in range(2):
        shutil.rmtree(tmp_path / f"node{node}")
    done = pytracer("inspect", bucket, "--json", cwd=tmp_path)
    assert done.returncode == 0, (done.stderr, said)
    report = json.loads(done.stdout)
    verdict, digests = report["verdict"], report["run"]["digests"]
    assert (verdict["class"], verdict["rank"]) == ("null-dereference", 3), verdict
    assert (digests["count"], digests["missing_ranks"]) == (2, [])
    assert len(digests["unread"]) == 1 and "blackbox" in digests["unread"][0]


def test_bucket_that_is_not_there_is_one_line(bucket: str, tmp_path: Path) -> None:
    """For inspect, and for a digest that is to be written: the status is the job's."""
    done = pytracer("inspect", "s3://nobody-has-this/x", cwd=tmp_path)
    assert done.returncode == 1 and "s3://nobody-has-this/x" in only_line(done)


@pytest.mark.parametrize("status", [0, 3])
def test_launcher_with_a_missing_bucket_returns_the_status_of_the_job(bucket: str, status: int, tmp_path: Path) -> None:
    """And one line says why there is no digest."""
    place = "s3://nobody-has-this/x"
    job = [sys.executable, "-c", f"import os, signal; os.kill(os.getpid(), 0); raise SystemExit({status})"]
    env = environment(**{name: os.environ[name] for name in VARIABLES})
    done = pytracer("run", "--quiet", "--digest", place, "-o", "run", "--", *job, cwd=tmp_path, env=env)
    assert done.returncode == status, done.stderr
