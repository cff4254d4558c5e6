"""Many runs read on a cluster: Ray's and Spark's own, local, with two workers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.cli import clean_environment, pytracer
from tests.support.synth import Box

RUNS = 45  # three tasks

SPARK = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 "
    "--conf spark.driver.bindAddress=127.0.0.1 pyspark-shell",
}
RAY = {"RAY_OVERRIDE_RESOURCES": '{"CPU": 2}', "RAY_DISABLE_DASHBOARD": "1"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Recordings of processes that died at one of five addresses, and one folder that is no run."""
    folder = tmp_path_factory.mktemp("runs")
    for number in range(RUNS):
        boxes = folder / f"{number:03}" / "boxes"
        boxes.mkdir(parents=True)
        Box(pid=100 + number).crash(addr=0x1000 * (number % 5)).write(boxes / f"node0.{100 + number}.blackbox")
    (folder / "none").mkdir()
    return sorted(folder.iterdir())


def add(listed: Path, *options: str, cwd: Path, env: dict[str, str]) -> CompletedProcess[str]:
    with listed.open() as stdin:
        return pytracer("history", "add", "-", *options, cwd=cwd, env=env, stdin=stdin)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_runs_are_added_on_a_cluster_as_in_one_process(engine: str, runs: list[Path], tmp_path: Path) -> None:
    """The same rows; one line for the run that cannot be read; added again, nothing is new."""
    pytest.importorskip(engine if engine == "ray" else "pyspark", reason="make test-integrations installs it")
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs java: apt-get install default-jre-headless")
    listed = tmp_path / "list"
    listed.write_text("".join(f"{path}\n" for path in runs))
    environment = clean_environment(**(SPARK if engine == "spark" else RAY))
    answers = []
    for store, options in (("here", []), ("there", ["--engine", engine])):
        at = ["--store", str(tmp_path / store)]
        done = add(listed, *at, *options, cwd=tmp_path, env=environment)
        assert done.returncode == 1, done.stderr
        assert done.stdout == f"{tmp_path / store}: {RUNS} added, 1 not readable\n", done.stderr
        assert f"{runs[-1]}: not added: " in done.stderr
        query = ["--sql", "SELECT * EXCLUDE (added) FROM runs ORDER BY run_key", "--json"]
        answers.append(json.loads(pytracer("history", *at, *query, cwd=tmp_path, env=environment).stdout))
    assert answers[0] == answers[1]
    again = add(listed, *at, *options, cwd=tmp_path, env=environment)
    assert again.stdout == f"{tmp_path / 'there'}: 0 added, {RUNS} already there, 1 not readable\n"
