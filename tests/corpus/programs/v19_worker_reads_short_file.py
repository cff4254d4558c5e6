# sgl-project/sglang#6083: Bus error, and it is not shared memory
import os
import tempfile

import numpy as np
import torch

path = os.path.join(tempfile.mkdtemp(), "tokens.bin")
np.zeros(4 << 20, dtype=np.int32).tofile(path)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = np.memmap(path, dtype=np.int32, mode="r")

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.from_numpy(self.tokens[i << 16 : (i + 1) << 16].astype(np.int64))


data = Tokens()
os.truncate(path, 5 << 20)  # preprocessing writes the file again
try:
    for batch in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1):
        print(batch.sum())
finally:
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
