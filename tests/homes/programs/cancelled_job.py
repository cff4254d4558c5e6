"""Runs srun; at SIGTERM the job is cancelled, as Slurm itself ends one: a SIGTERM to srun kills its tasks at once."""

import signal
import subprocess
import sys
import uuid

NAME = uuid.uuid4().hex

with subprocess.Popen([sys.argv[1], f"--job-name={NAME}", *sys.argv[2:]], start_new_session=True) as step:
    signal.signal(signal.SIGTERM, lambda *_: subprocess.run(["scancel", f"--name={NAME}"], check=True))
    sys.exit(step.wait() % 256)
