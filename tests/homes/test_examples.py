"""The Ray runtime environment in a real Ray, and the Kubernetes job by a validator and by its own command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pytracer
from tests.conditions import needs_core, needs_native
from tests.homes.environments import installed, python_of
from tests.support.cli import ROOT
from tests.support.crash import environment

pytestmark = pytest.mark.slow

JOB = ROOT / "examples" / "kubernetes" / "job.yaml"
READ = (
    "import json, sys, yaml, kubernetes_validate as k\n"
    "documents = list(yaml.safe_load_all(open(sys.argv[1])))\n"
    "for document in documents: k.validate(document, k.latest_version(), strict=True)\n"
    "print(json.dumps(documents))"
)


@needs_native
@pytest.mark.timeout(200)
@pytest.mark.skipif(not installed("ray"), reason="build/homes/ray is not installed: make test-homes")
def test_runtime_environment_records_a_task_and_an_actor(tmp_path: Path) -> None:
    """Without a launcher; each is named, with its line."""
    program = ROOT / "examples" / "ray_runtime_env.py"
    done = subprocess.run(
        [python_of("ray"), program], env=environment(RAY_USAGE_STATS_ENABLED="0"), cwd=tmp_path,
        capture_output=True, text=True, timeout=150, check=True,
    )  # fmt: skip
    assert "WorkerCrashedError\n" in done.stdout
    assert "ActorDiedError\n" in done.stdout
    processes = pytracer.inspect(str(tmp_path / "ray-run")).processes or []
    died = {item.name: item for item in processes if item.status is not None and item.status.kind == "signaled"}
    assert set(died) == {"Ray task count", "Ray actor Trainer"}
    for item, function in ((died["Ray task count"], "count"), (died["Ray actor Trainer"], "step")):
        frame = next(f for f in item.python_stack or () if (f.file or "").endswith("ray_runtime_env.py"))
        assert (frame.function or "").rpartition(".")[2] == function
        assert item.signal is not None and item.signal.name == "SIGSEGV"


def job_documents() -> list[dict[str, object]]:
    if not installed("kubernetes"):
        pytest.skip("build/homes/kubernetes is not installed: make test-homes")
    done = subprocess.run([python_of("kubernetes"), "-c", READ, JOB], capture_output=True, text=True, check=True)
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_job_is_valid_for_kubernetes() -> None:
    """By the API's own schema, strictly: no field that the server does not know."""
    assert [document["kind"] for document in job_documents()] == ["PersistentVolumeClaim", "Job"]


@needs_core
def test_command_of_the_pod_ends_with_the_advice(tmp_path: Path) -> None:
    """What the policy decides by: 0 for a good end, 12 where the next pod would run the same bug."""
    job = json.loads(json.dumps(job_documents()[1]))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    shell, option, script = container["command"]
    rules = {rule["action"]: rule["onExitCodes"]["values"] for rule in job["spec"]["podFailurePolicy"]["rules"]
             if "onExitCodes" in rule}  # fmt: skip
    (tmp_path / "train.py").write_text(
        "import os\nif os.environ['DIES'] == '1':\n    import ctypes; ctypes.string_at(0)\n"
    )
    statuses = []
    for dies in "01":
        here = script.replace("/runs/job", str(tmp_path / dies)).replace(
            "torchrun --standalone --nproc-per-node 2", sys.executable
        )
        path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        (tmp_path / "pytracer").write_text(f'#!/bin/sh\nexec {sys.executable} -m pytracer "$@"\n')
        (tmp_path / "pytracer").chmod(0o755)
        env = environment(PATH=path, DIES=dies)
        statuses.append(subprocess.run([shell, option, here], env=env, cwd=tmp_path, check=False).returncode)
    assert statuses == [0, 12]
    assert rules == {"FailJob": [12], "Ignore": [10, 11], "Count": [13]}
