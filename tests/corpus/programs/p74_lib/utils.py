import torch
import torch.distributed as dist


def log0(message):
    if dist.get_rank() == 0:
        print(message, flush=True)


def share_from_main(tensor, shape, dtype):
    """Every rank gets what the main rank has computed."""
    if dist.get_rank() != 0:
        tensor = torch.zeros(shape, dtype=dtype)
    dist.broadcast(tensor, src=0)
    return tensor


def reduce_mean(total, count):
    pair = torch.tensor([total, float(count)], dtype=torch.float64)
    dist.all_reduce(pair)
    return (pair[0] / pair[1]).item()
