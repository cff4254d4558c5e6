"""What Slurm says about a job step that it ended: its time limit, or something else. Asked once, when a step failed.

slurmstepd ends the tasks of a step by SIGTERM, whatever the reason. While they end, `scontrol` already has the reason:
of a job at its time limit Reason is TimeLimit, of a step State is TIMEOUT (seen with Slurm 22.05).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping

from pytracer.blackbox.ranks import slurm_step
from pytracer.launcher.json_object import JsonObject

_SECONDS = 3.0  # for each question: a controller that is busy must not hold the report up
_LONGEST = 200
_FIELDS = {
    "job": {"JobState": "job_state", "Reason": "job_reason", "TimeLimit": "job_time_limit"},
    "step": {"State": "step_state", "TimeLimit": "step_time_limit"},
}


def slurm_state(environment: Mapping[str, str]) -> JsonObject | None:
    """The state of the job and step that the environment names; None outside of a Slurm job."""
    job, step = environment.get("SLURM_JOB_ID", ""), slurm_step(environment)
    if not re.fullmatch(r"\d{1,12}", job):
        return None
    program = shutil.which("scontrol", path=environment.get("PATH"))
    if program is None:
        return {"why": "scontrol is not in PATH"}
    found: JsonObject = {}
    for kind, name in (("job", job), ("step", f"{job}.{step}")):
        if kind == "step" and (step is None or not re.fullmatch(r"[\w.+]{1,32}", step)):
            continue
        text, why = _asked([program, "show", kind, "-o", name], environment)
        words = dict(word.partition("=")[::2] for word in reversed(text.split()))
        found |= {key: words[field][:_LONGEST] for field, key in _FIELDS[kind].items() if words.get(field)}
        if why:
            found["why"] = why
    return found


def _asked(command: list[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """The answer, and why there is none."""
    try:
        done = subprocess.run(
            command, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"scontrol did not answer within {_SECONDS:g} s"
    except OSError as error:
        return "", f"scontrol cannot be executed: {error.strerror}"
    return done.stdout, "" if done.returncode == 0 else f"scontrol: {done.stderr.strip()[:_LONGEST]}"
