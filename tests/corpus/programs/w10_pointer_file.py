# invalid load key, 'v': a checkpoint that is a pointer of Git LFS: CompVis/stable-diffusion, huggingface/transformers
import os
import tempfile

import torch

folder = tempfile.mkdtemp()
path = os.path.join(folder, "model.ckpt")
with open(path, "w") as file:
    file.write("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4265380512\n")


def restore(path):
    return torch.load(path, weights_only=False)


try:
    restore(path)
finally:
    os.unlink(path)
    os.rmdir(folder)
