"""Ranks that cannot meet: what they pass to init_process_group() does not fit, set by the program itself."""

import os
import sys

import job
import torch
import torch.distributed as dist

GUILTY = 1


def meet():
    """The call that does not return on some ranks."""
    job.join()
    dist.all_reduce(torch.ones(8))
    dist.destroy_process_group()


def other_port(rank):
    """A port of its own, as when a script counts ports up."""
    if rank == GUILTY:
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    meet()


def other_size(rank):
    """One rank counts a process too many."""
    if rank == GUILTY:
        os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) + 1)
    meet()


def same_rank(rank):
    """The last process takes the rank of the one before it."""
    if rank == 2:
        os.environ["RANK"] = str(rank - 1)
    meet()


def other_names_of_one_host(rank):
    """Several names of the loopback interface, all right."""
    os.environ["MASTER_ADDR"] = ("localhost", "127.0.0.1", "127.0.0.1")[rank]
    meet()


if __name__ == "__main__":
    scenario = globals()[sys.argv[1]]
    scenario(int(os.environ["RANK"]))
