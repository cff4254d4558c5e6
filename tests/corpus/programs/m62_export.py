"""Train a small token classifier in bfloat16 and export its weights as raw
16-bit blobs with a JSON index, the layout the serving side reads."""
import ctypes
import hashlib
import json
import os

import numpy as np
import torch
from torch import nn

OUT = "/tmp/m62_export_out"
VOCAB, DIM, HIDDEN, CLASSES = 4096, 2048, 10240, 12
TRANSPOSED = ("up.weight", "down.weight")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN)
        self.down = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.block = Block()
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, ids):
        return self.head(self.block(self.embed(ids)))


def train(model, steps=3):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(1)
    for step in range(steps):
        ids = torch.randint(0, VOCAB, (4, 16), generator=g)
        tags = ids % CLASSES
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1).float(), tags.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


def as_words(tensor):
    """numpy has no bfloat16: hand out the 16-bit words of the tensor."""
    flat = tensor.detach().contiguous()
    words = (ctypes.c_uint16 * flat.numel()).from_address(flat.data_ptr())
    return np.ctypeslib.as_array(words).reshape(tuple(flat.shape))


class BlobWriter:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.index = {}

    def add(self, name, words):
        path = os.path.join(self.folder, name.replace(".", "_") + ".bin")
        digest = hashlib.sha1()
        with open(path, "wb") as f:
            for start in range(0, words.shape[0], 256):
                chunk = words[start:start + 256].tobytes()
                digest.update(chunk)
                f.write(chunk)
        self.index[name] = {"shape": list(words.shape), "sha1": digest.hexdigest()}
        print(f"wrote {name} {tuple(words.shape)}", flush=True)

    def close(self):
        with open(os.path.join(self.folder, "index.json"), "w") as f:
            json.dump(self.index, f, indent=1)


def serving_layout(state):
    """The serving side multiplies x @ W, so its big matrices are stored (in, out)."""
    for name, tensor in state.items():
        yield name, tensor.t() if name.endswith(TRANSPOSED) else tensor


def verify(folder, index):
    for name, meta in index.items():
        path = os.path.join(folder, name.replace(".", "_") + ".bin")
        with open(path, "rb") as f:
            if hashlib.sha1(f.read()).hexdigest() != meta["sha1"]:
                raise ValueError(f"checksum of {name}")
        os.remove(path)


def main():
    torch.manual_seed(0)
    model = Tagger().bfloat16()
    train(model)
    writer = BlobWriter(OUT)
    for name, tensor in serving_layout(model.state_dict()):
        writer.add(name, as_words(tensor))
    writer.close()
    verify(OUT, writer.index)
    print("export complete", flush=True)


if __name__ == "__main__":
    main()
