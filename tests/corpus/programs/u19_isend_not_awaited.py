# pytorch/pytorch#78514
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main_worker(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29517", world_size=size, rank=rank)
    x = torch.rand([512, 512])
    if rank == 0:
        import time

        for step in range(3):
            dist.isend(x, 1)
        time.sleep(0.5)
    else:
        for step in range(4):
            dist.recv(x, 0)
    print("finish", rank)


if __name__ == "__main__":
    mp.spawn(main_worker, nprocs=2, args=(2,))
