"""slurmstepd at a time limit: starts a command, ends it by SIGTERM once it prints a line or ends, then by SIGKILL."""

import signal
import subprocess
import sys
import time

with subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, text=True) as command:
    assert command.stdout is not None
    command.stdout.readline()
    command.send_signal(signal.SIGTERM)
    time.sleep(float(sys.argv[1]))
    command.send_signal(signal.SIGKILL)
