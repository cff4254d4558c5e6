"""The launcher serves a store of its own, and gives its port to the ranks as MASTER_PORT: rank 0 cannot serve there."""

import os

import torch.distributed as dist
import torch.multiprocessing as mp


class Board:
    def __init__(self, serve=False):
        port = 0 if serve else int(os.environ["MASTER_PORT"])
        self.store = dist.TCPStore("127.0.0.1", port, is_master=serve, wait_for_workers=False)


def train(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)


if __name__ == "__main__":
    board = Board(serve=True)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(board.store.port)}
    mp.spawn(train, nprocs=2)
