"""A job of submitit, a task of joblib and one of concurrent.futures die, one after the other; the program goes on."""

import ctypes
from concurrent.futures import ProcessPoolExecutor

import joblib
import submitit


def bad(_=0):
    ctypes.string_at(0)


def attempt(run):
    try:
        run()
    except BaseException as error:
        print(type(error).__name__, flush=True)


if __name__ == "__main__":
    executor = submitit.LocalExecutor("logs")
    executor.update_parameters(timeout_min=1)
    attempt(lambda: executor.submit(bad).result())
    attempt(lambda: joblib.Parallel(2)(joblib.delayed(bad)(number) for number in range(2)))
    with ProcessPoolExecutor(1) as pool:
        attempt(lambda: pool.submit(bad).result())
