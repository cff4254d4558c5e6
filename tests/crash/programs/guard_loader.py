"""Two DataLoader workers; with an argument, a transform in one of them writes one element too many."""

import ctypes
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

kernels = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])
kernels.decay.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_float]


class Samples(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        sample = torch.full((256,), float(index))
        if len(sys.argv) > 1 and index == 9:
            kernels.decay(sample.data_ptr(), len(sample), 1.0)
        return sample


total = sum(batch.sum().item() for batch in DataLoader(Samples(), batch_size=4, num_workers=2))
print("finished", total, flush=True)
