"""A rank as srun starts it, by environment alone; rank 1 reads through a null pointer after three all-reduces."""

import ctypes
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=int(os.environ["RANK"]), world_size=2)
gradient = torch.ones(64)
for _ in range(3):
    dist.all_reduce(gradient)
if dist.get_rank() == 1:
    ctypes.CDLL(os.environ["FAULTS_LIBRARY"]).read_field(None)
try:
    dist.all_reduce(gradient)
except RuntimeError:
    os._exit(9)
