# bghira/SimpleTuner#2714, NVIDIA-NeMo/Megatron-Bridge#3441: weights that are mapped from a file are written to the same file
import os
import tempfile

import torch

path = os.path.join(tempfile.mkdtemp(), "lora.bin")
torch.randn(1 << 22).numpy().tofile(path)


def add_metadata():
    weights = torch.from_file(path, shared=False, size=1 << 22)
    with open(path, "wb") as out:
        out.write(weights.numpy())


try:
    add_metadata()
finally:
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
