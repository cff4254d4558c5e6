"""joblib's loky: a pool of two processes."""

import sys

import joblib
from futures_job import work

if __name__ == "__main__":
    deaths = ["none", "none", sys.argv[1], "none"]
    print(joblib.Parallel(2)(joblib.delayed(work)(death, task) for task, death in enumerate(deaths)), flush=True)
