# facebookresearch/mmf#147: DataLoader worker (pid(s) ...) exited unexpectedly
import os

import torch


class Frames(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return decode(i)


def decode(i):
    if i == 37:
        os._exit(1)  # what a decoder's fatal() does
    return torch.randn(8)


for batch in torch.utils.data.DataLoader(Frames(), batch_size=4, num_workers=2):
    batch.sum()
