# numpy's ndarray.resize(refcheck=False) below a tensor of the same memory
import numpy as np
import torch


class Replay:
    def __init__(self, size):
        self.frames = np.zeros((size, 84, 84), dtype=np.float32)
        self.view = torch.from_numpy(self.frames)

    def shrink(self, size):
        self.frames.resize((size, 84, 84), refcheck=False)


replay = Replay(2000)
print(replay.view[1999].sum())
replay.shrink(10)
print(replay.view[1999].sum())
