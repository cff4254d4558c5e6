import argparse
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("gesture")


def open_native(workdir):
    target = Path(workdir) / "libclipstore.so"
    src = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", "-o", str(target), str(src)], check=True)
    lib = ctypes.CDLL(str(target))
    lib.store_open.restype = ctypes.c_void_p
    lib.store_put.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
    lib.store_export.restype = ctypes.c_void_p
    lib.store_export.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_size_t)]
    lib.buffer_free.argtypes = lib.store_close.argtypes = [ctypes.c_void_p]
    return lib


class ExportedBuffer:
    def __init__(self, lib, address):
        self.lib, self.address = lib, address

    def __del__(self):
        self.lib.buffer_free(self.address)


class FeatureStore:
    def __init__(self, lib):
        self.lib, self.handle = lib, lib.store_open()
        self.shapes = {}

    def put(self, key, array, shape=None):
        raw = np.ascontiguousarray(array, np.float32).tobytes()
        self.lib.store_put(self.handle, key, raw, len(raw))
        self.shapes[key] = tuple(shape or array.shape)

    def get(self, key):
        size = ctypes.c_size_t()
        address = self.lib.store_export(self.handle, key, ctypes.byref(size))
        if not address:
            return None
        return self.buffer_to_array(address, size.value, self.shapes[key])

    def buffer_to_array(self, address, nbytes, shape):
        try:
            view = (ctypes.c_char * nbytes).from_address(address)
            view.owner = ExportedBuffer(self.lib, address)
            return np.frombuffer(view, np.float32).reshape(shape)
        except ValueError:
            self.lib.buffer_free(address)
            return None

    def close(self):
        self.lib.store_close(self.handle)


class GestureClips(Dataset):
    def __init__(self, store, clips, frames=32, joints=48, seed=3):
        rng = np.random.default_rng(seed)
        self.store, self.frames, self.joints = store, frames, joints
        self.labels = rng.integers(0, 6, clips)
        self.recomputed = 0
        for i in range(clips):
            length = frames if i % 61 else frames - 4
            store.put(i, self.extract(i, length), shape=(frames, joints))

    def extract(self, i, length=None):
        rng = np.random.default_rng(1000 + i)
        t = np.linspace(0, 1, length or self.frames)[:, None]
        phase = rng.normal(0, 0.3, (1, self.joints))
        return np.sin((1 + self.labels[i]) * t * 6.28 + phase).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        feats = self.store.get(i)
        if feats is None:
            self.recomputed += 1
            feats = self.extract(i)
        return torch.from_numpy(feats.copy()), int(self.labels[i])


class GestureGRU(nn.Module):
    def __init__(self, joints, hidden=48, classes=6):
        super().__init__()
        self.rnn = nn.GRU(joints, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.rnn(x)[0].mean(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=300)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=20)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="gesture_") as workdir:
        store = FeatureStore(open_native(workdir))
        data = GestureClips(store, args.clips)
        loader = DataLoader(data, args.batch_size, shuffle=True)
        model = GestureGRU(data.joints)
        opt = torch.optim.Adam(model.parameters(), lr=3e-3)
        log.info("%d clips in the feature store", len(data))
        for epoch in range(args.epochs):
            total = 0.0
            for step, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                total += loss.item()
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            log.info("epoch %d mean loss %.4f recomputed %d", epoch, total / len(loader), data.recomputed)
        store.close()
        torch.save(model.state_dict(), Path(workdir) / "gesture.pt")
        log.info("finished")


if __name__ == "__main__":
    main()
