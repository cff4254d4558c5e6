"""submitit with its local executor."""

import os
import sys

import submitit
from futures_job import work

if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder=os.path.join(os.environ["HOMES_WORK"], "jobs"), cluster="local")
    executor.update_parameters(timeout_min=1)
    print(executor.submit(work, sys.argv[1], 3).result(), flush=True)
