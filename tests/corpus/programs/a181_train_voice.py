import argparse
import ctypes
import logging
import math
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

HERE = os.path.dirname(os.path.abspath(__file__))
log = logging.getLogger("voice")


def build_align():
    out = os.path.join(tempfile.mkdtemp(prefix="align_"), "align.so")
    subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "a181_align.c"), "-o", out])
    lib = ctypes.CDLL(out)
    fp = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    ip = np.ctypeslib.ndpointer(np.int32, flags="C_CONTIGUOUS")
    lib.maximum_path.argtypes = [ip, fp, ip, ip, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    lib.maximum_path.restype = None
    return lib


ALIGN = build_align()


def maximum_path(value, mask):
    value = (value * mask).detach().cpu().numpy()
    path = np.zeros_like(value).astype(np.int32)
    t_y = mask.sum(1)[:, 0].numpy().astype(np.int32)
    t_x = mask.sum(2)[:, 0].numpy().astype(np.int32)
    ALIGN.maximum_path(path, value, t_y, t_x, *value.shape)
    return torch.from_numpy(path).float()


class SpeechCorpus(Dataset):
    def __init__(self, n_utts, n_symbols, n_mels, max_frames, seed=8):
        rng = np.random.default_rng(seed)
        self.n_mels, self.max_frames = n_mels, max_frames
        self.texts = []
        for _ in range(n_utts):
            n = int(np.clip(rng.lognormal(5.65, 0.55), 60, 880))
            self.texts.append(rng.integers(1, n_symbols, n))
        self.voice = rng.normal(size=(n_symbols, n_mels)).astype(np.float32)
        self.durations = rng.integers(1, 3, n_symbols)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        text = self.texts[i]
        mel = np.repeat(self.voice[text], self.durations[text], axis=0)
        mel = mel + 0.1 * np.random.default_rng(i).normal(size=mel.shape).astype(np.float32)
        mel = mel[: self.max_frames].astype(np.float32)
        return torch.from_numpy(text), torch.from_numpy(mel)


def collate(batch):
    batch = sorted(batch, key=lambda b: -len(b[0]))
    x_len = torch.tensor([len(t) for t, _ in batch])
    y_len = torch.tensor([len(m) for _, m in batch])
    x = nn.utils.rnn.pad_sequence([t for t, _ in batch], batch_first=True)
    y = nn.utils.rnn.pad_sequence([m for _, m in batch], batch_first=True)
    return x, x_len, y, y_len


class Acoustic(nn.Module):
    def __init__(self, n_symbols, n_mels, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(n_symbols, hidden, padding_idx=0)
        self.conv = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.mu = nn.Linear(hidden, n_mels)
        self.dur = nn.Linear(hidden, 1)

    def forward(self, x, x_len, y, y_len):
        h = self.emb(x)
        h = h + F.relu(self.conv(h.transpose(1, 2))).transpose(1, 2)
        mu, log_dur = self.mu(h), self.dur(h).squeeze(-1)
        x_mask = (torch.arange(x.size(1)) < x_len[:, None]).float()
        y_mask = (torch.arange(y.size(1)) < y_len[:, None]).float()
        with torch.no_grad():
            score = y @ mu.transpose(1, 2) - 0.5 * (mu ** 2).sum(-1)[:, None, :]
            attn = maximum_path(score, y_mask[:, :, None] * x_mask[:, None, :])
        mel_loss = (((attn @ mu - y) ** 2).mean(-1) * y_mask).sum() / y_mask.sum()
        dur_loss = ((log_dur - torch.log(attn.sum(1) + 1e-4)) ** 2 * x_mask).sum() / x_mask.sum()
        return mel_loss, dur_loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--max-frames", type=int, default=750)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(1)
    data = SpeechCorpus(240, 60, 40, args.max_frames)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    model = Acoustic(60, 40)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    log.info("%d utterances, %d batches per epoch", len(data), len(loader))
    step = 0
    for epoch in range(args.epochs):
        for batch in loader:
            mel_loss, dur_loss = model(*batch)
            loss = mel_loss + 0.1 * dur_loss
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            log.info("epoch %d step %d mel %.4f dur %.4f", epoch, step, mel_loss.item(), dur_loss.item())
        log.info("epoch %d finished, bits %.3f", epoch, mel_loss.item() / math.log(2))


if __name__ == "__main__":
    main()
