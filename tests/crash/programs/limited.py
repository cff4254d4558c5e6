"""Sets a limit, as batch systems do, and starts Python under it: limited.py NAME VALUE CODE."""

import os
import resource
import sys

value = int(sys.argv[2])
resource.setrlimit(getattr(resource, sys.argv[1]), (value, value))
os.execv(sys.executable, [sys.executable, "-c", sys.argv[3]])
