"""A second job on the same machine starts with the same port for its store."""

import os
import socket

import torch
import torch.distributed as dist


def other_job(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def join(port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")


def train():
    dist.all_reduce(torch.ones(1))


running = other_job(29577)
join(29577)
train()
