"""A DataLoader worker dereferences null, in native code that decodes one sample."""

import ctypes
import os

import torch
from torch.utils.data import DataLoader, Dataset

library = ctypes.CDLL(os.environ["FAULTS_LIBRARY"])


class Samples(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        if index == 9:
            library.read_field(None)
        return torch.full((8,), float(index))


def main():
    torch.set_num_threads(1)
    for batch in DataLoader(Samples(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        print(batch.sum().item(), flush=True)


if __name__ == "__main__":
    main()
