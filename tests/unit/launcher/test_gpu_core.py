"""`run --gpu-core`: variables of NVIDIA's driver, never over what the user has set."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pytracer.launcher.gpu_core import gpu_core_variables
from tests.support.cli import clean_environment, pytracer

ENABLE, FILE, FLAGS = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE", "CUDA_COREDUMP_GENERATION_FLAGS"


def run(tmp_path: Path, name: str = "run", **given: str) -> tuple[dict[str, str], dict[str, Any], str]:
    """The job's variables, the entry in run.json, and the message to the user."""
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('CUDA_')}))"
    command = ["run", "--gpu-core", "-o", name, "--", sys.executable, "-c", code]
    done = pytracer(*command, cwd=tmp_path, env=clean_environment(**given))
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / name / "run.json").read_text(encoding="utf-8"))["gpu_core"]
    return json.loads(done.stdout), record, done.stderr


def test_the_driver_is_told_to_write_into_the_run(tmp_path: Path) -> None:
    """Without memory; the process ends by abort() after it."""
    seen, record, said = run(tmp_path)
    assert seen == record["set"] and record["kept"] == {} and record["file"] is None
    assert (seen[ENABLE], seen[FILE]) == ("1", f"{tmp_path}/run/gpu-cores/%h.%p.nvcudmp")
    flags = set(seen[FLAGS].split(","))
    assert "skip_global_memory" in flags
    assert "skip_abort" not in flags  # the driver would let the call after a failed kernel succeed
    assert (tmp_path / "run" / "gpu-cores").is_dir() and len(said.splitlines()) == 1


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    """Another place, and all memory in it: looked for there."""
    given = {FILE: "/elsewhere/%p", FLAGS: "skip_abort"}
    seen, record, _ = run(tmp_path, **given)
    assert {name: seen[name] for name in given} == given == record["kept"]
    assert record["file"] == "/elsewhere/%p" and record["set"] == {ENABLE: "1"}


def test_settings_that_defeat_the_dump_are_told(tmp_path: Path) -> None:
    """Switched off, errors that pass unnoticed, or a directory that the driver would misread."""
    assert f"{ENABLE}=0 is set: devices write no core dump" in run(tmp_path, **{ENABLE: "0"})[2]
    said = run(tmp_path, "second", **{FLAGS: "skip_abort"})[2]
    assert "is set with skip_abort: a failed kernel can go unnoticed" in said
    added, _, notes = gpu_core_variables(tmp_path / "100%p", {})
    assert added == {} and "would misread the %" in notes[0]
