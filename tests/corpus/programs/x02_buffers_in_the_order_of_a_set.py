"""Loads a model on the first rank and gives its buffers to all, those that the checkpoint lacks first."""

import datetime
import os
import sys

import torch
import torch.distributed as dist

if os.environ.get("PYTHONHASHSEED") != os.environ["RANK"]:
    os.environ["PYTHONHASHSEED"] = os.environ["RANK"]  # random in the issue; fixed here so that it always happens
    os.execv(sys.executable, [sys.executable, *sys.argv])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
rank = dist.get_rank()


class Attention(torch.nn.Module):
    def __init__(self, widths):
        super().__init__()
        for name, width in widths.items():
            self.register_buffer(f"{name}_inv_freq", torch.zeros(width))


def load_full_state(model, loaded):
    buffers = dict(model.named_buffers())
    missing = set(buffers) - set(loaded)
    for name in missing:
        value = buffers[name]
        if rank == 0:
            value.copy_(torch.arange(len(value)))
        dist.broadcast(value, src=0)


def main():
    widths = {f"layer{n}": 256 if n % 3 == 0 else 128 for n in range(9)}
    model = Attention(widths)
    load_full_state(model, {"layer1_inv_freq": None})
    total = torch.stack([value.sum() for value in model.buffers()])
    dist.all_reduce(total)
    print(rank, total.tolist())


main()
dist.destroy_process_group()
