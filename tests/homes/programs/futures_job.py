"""concurrent.futures: a pool of two processes."""

import concurrent.futures
import multiprocessing
import sys

import training


def work(death: str, task: int) -> int:
    if death == "worker":
        training.decode(task)
    training.die(death, training.VICTIM, training.LAST_STEP)
    return task * task


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        deaths = ["none", "none", sys.argv[1], "none"]
        print(list(pool.map(work, deaths, range(4))), flush=True)
