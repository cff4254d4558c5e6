import argparse
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("voice")

HERE = Path(__file__).resolve().parent
N_MELS, N_SYMBOLS, HOP = 20, 48, 256


def build_kernel(out_dir):
    lib_path = Path(out_dir) / "libmonotonic.so"
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", str(lib_path), str(HERE / "d181_voice.c")], check=True)
    lib = ctypes.CDLL(str(lib_path))
    ptr = ctypes.c_void_p
    lib.maximum_path.argtypes = [ptr, ptr, ptr, ptr, ptr, ctypes.c_int32]
    lib.maximum_path.restype = None
    return lib


class Corpus(Dataset):
    def __init__(self, n_clips, max_seconds, rate=16000, seed=7):
        rng = np.random.default_rng(seed)
        self.clips = []
        for i in range(n_clips):
            words = int(rng.integers(3, 14)) if i % 97 != 61 else 90
            phonemes = rng.integers(1, N_SYMBOLS, size=words * 5)
            seconds = min(words * 0.42 + rng.random() * 0.3, max_seconds)
            frames = int(seconds * rate / HOP)
            self.clips.append((f"spk0_{i:05d}", phonemes, frames))

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        name, phonemes, frames = self.clips[i]
        mel = torch.randn(frames, N_MELS, generator=torch.Generator().manual_seed(i))
        return name, torch.from_numpy(phonemes), mel


def collate(batch):
    names, text, mels = zip(*batch)
    text_len = torch.tensor([len(t) for t in text])
    mel_len = torch.tensor([len(m) for m in mels])
    text = nn.utils.rnn.pad_sequence(text, batch_first=True)
    mels = nn.utils.rnn.pad_sequence(mels, batch_first=True)
    return names, text, text_len, mels, mel_len


class AcousticModel(nn.Module):
    def __init__(self, kernel, width=48):
        super().__init__()
        self.kernel = kernel
        self.embed = nn.Embedding(N_SYMBOLS, width, padding_idx=0)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.mean = nn.Linear(width, N_MELS)
        self.duration = nn.Linear(width, 1)

    @torch.no_grad()
    def search(self, mean, mels, text_len, mel_len):
        scores, offsets, at = [], [], 0
        for mu, mel, tx, ty in zip(mean, mels, text_len.tolist(), mel_len.tolist()):
            score = -torch.cdist(mel[:ty], mu[:tx]).pow(2)
            scores.append(score.reshape(-1).numpy())
            offsets.append(at)
            at += ty * tx
        values = np.ascontiguousarray(np.concatenate(scores), dtype=np.float32)
        paths = np.zeros(at, dtype=np.int32)
        offsets = np.asarray(offsets, dtype=np.int64)
        ys, xs = mel_len.numpy().astype(np.int32), text_len.numpy().astype(np.int32)
        self.kernel.maximum_path(paths.ctypes.data, values.ctypes.data, offsets.ctypes.data, ys.ctypes.data, xs.ctypes.data, len(ys))
        return [torch.from_numpy(paths[o:o + y * x].reshape(y, x)).float() for o, y, x in zip(offsets, ys, xs)]

    def forward(self, text, text_len, mels, mel_len):
        hidden, _ = self.encoder(self.embed(text))
        mean, logdur = self.mean(hidden), self.duration(hidden).squeeze(-1)
        losses = []
        for b, path in enumerate(self.search(mean, mels, text_len, mel_len)):
            aligned = path @ mean[b, :path.shape[1]]
            target = torch.log1p(path.sum(0))
            losses.append(F.mse_loss(aligned, mels[b, :path.shape[0]]) + F.mse_loss(logdur[b, :path.shape[1]], target))
        return torch.stack(losses).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=640)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-seconds", type=float, default=6.0)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1234)
    with tempfile.TemporaryDirectory() as tmp:
        model = AcousticModel(build_kernel(tmp))
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        loader = DataLoader(Corpus(args.clips, args.max_seconds), batch_size=args.batch_size, shuffle=True, collate_fn=collate)
        log.info("%d clips, %d batches per epoch", args.clips, len(loader))
        for epoch in range(args.epochs):
            for step, (names, text, text_len, mels, mel_len) in enumerate(loader):
                loss = model(text, text_len, mels, mel_len)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if step % 2 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        log.info("finished")


if __name__ == "__main__":
    main()
