# pytorch/pytorch#4969: a worker dies by SIGSEGV while it decodes an image
import ctypes

import torch
from torch.utils.data import DataLoader, Dataset

libc = ctypes.CDLL(None)
libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Images(Dataset):
    def __init__(self):
        self.headers = [(64, 64)] * 40
        self.headers[21] = (64, 6400000)

    def __len__(self):
        return len(self.headers)

    def __getitem__(self, index):
        pixels = torch.randint(255, (64 * 64,), dtype=torch.uint8)
        height, width = self.headers[index]
        image = torch.empty(64, 64, dtype=torch.uint8)
        libc.memcpy(image.data_ptr(), pixels.data_ptr(), height * width)
        return image


def train():
    for batch in DataLoader(Images(), batch_size=8, num_workers=2):
        batch.float().mean()


train()
