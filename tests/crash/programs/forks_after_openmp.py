"""A forked child uses OpenMP after its parent did: it waits for threads that fork() did not copy."""

import multiprocessing

import torch


def total():
    return torch.ones(400, 400).sum()


if __name__ == "__main__":
    torch.set_num_threads(2)
    total()
    child = multiprocessing.get_context("fork").Process(target=total)
    child.start()
    child.join()
