# pytorch/pytorch#1355, pytorch/pytorch#75147
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

lock = threading.Lock()
seen = []


def log():
    while True:
        with lock:
            time.sleep(0.05)
            seen.append(time.time())


class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        with lock:
            seen.append(index)
        return torch.full((3, 8, 8), float(index))


if __name__ == "__main__":
    threading.Thread(target=log, daemon=True, name="logger").start()
    time.sleep(0.1)
    for batch in DataLoader(Images(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
        print(batch.mean())
