"""A child starts a grandchild and is killed; the grandchild is killed a second later, when its parent no longer exists.

lost_grandchild.py prints the parent that the grandchild has by then.
"""

import os
import signal
import time

seen, tell = os.pipe()
child = os.fork()
if child == 0:
    child = os.getpid()
    if os.fork() == 0:
        while os.getppid() == child:
            time.sleep(0.01)
        time.sleep(1.0)
        os.write(tell, str(os.getppid()).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    os.kill(child, signal.SIGKILL)
os.close(tell)
os.waitpid(child, 0)
print("parent", os.read(seen, 20).decode(), flush=True)
time.sleep(1.0)
