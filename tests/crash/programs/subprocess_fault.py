"""Starts commands: one through a shell, one Python that dies of abort(). Prints a pid for each."""

import os
import subprocess
import sys

print("parent", os.getpid(), flush=True)
shell = subprocess.Popen(["sh", "-c", "sleep 0; exit 5"])
print("shell", shell.pid, shell.wait(), flush=True)
code = "import os; print('grandchild', os.getpid(), flush=True); os.abort()"
child = subprocess.Popen([sys.executable, "-c", code])
print("child", child.pid, child.wait(), flush=True)
emptied = subprocess.run([sys.executable, "-c", "print('not traced')"], env={})
sys.exit(emptied.returncode)
