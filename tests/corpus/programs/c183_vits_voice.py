import ctypes
import logging
import math
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="[%(asctime)s] %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("vits")

HPARAMS = dict(batch_size=16, epochs=3, clips=320, symbols=96, mels=40, hidden=64, lr=2e-4, seed=1)


class MonotonicAlign:
    def __init__(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "c183_core.c")
        with tempfile.TemporaryDirectory() as build:
            target = os.path.join(build, "core.so")
            subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", source, "-o", target])
            self.lib = ctypes.CDLL(target)
        p = ctypes.c_void_p
        self.lib.maximum_path_c.argtypes = [p, p, p, p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_float]
        self.lib.maximum_path_c.restype = None

    def maximum_path(self, neg_cent, mask):
        path = np.zeros(tuple(neg_cent.shape), dtype=np.int32)
        t_ys = mask.sum(1)[:, 0].numpy().astype(np.int32)
        t_xs = mask.sum(2)[:, 0].numpy().astype(np.int32)
        value = neg_cent.detach().numpy().astype(np.float32)
        b, t_y, t_x = path.shape
        self.lib.maximum_path_c(path.ctypes.data, value.ctypes.data, t_ys.ctypes.data, t_xs.ctypes.data,
                                b, t_y, t_x, -1e9)
        return torch.from_numpy(path).to(neg_cent.dtype)


class TextAudioDataset(Dataset):
    def __init__(self, clips, symbols, mels, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for i in range(clips):
            phonemes = int(rng.integers(380, 820))
            frames = int(phonemes * rng.uniform(1.05, 1.25))
            if rng.random() < 0.06:
                frames = min(frames, 360)
            text = torch.from_numpy(rng.integers(1, symbols, phonemes))
            mel = torch.from_numpy(rng.normal(0, 1, (mels, frames)).astype(np.float32))
            self.items.append((text, mel))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    text_len = torch.tensor([t.numel() for t, _ in batch])
    mel_len = torch.tensor([m.size(1) for _, m in batch])
    text = torch.zeros(len(batch), int(text_len.max()), dtype=torch.long)
    mel = torch.zeros(len(batch), batch[0][1].size(0), int(mel_len.max()))
    for i, (t, m) in enumerate(batch):
        text[i, :t.numel()] = t
        mel[i, :, :m.size(1)] = m
    return text, text_len, mel, mel_len


def sequence_mask(length, maximum):
    return (torch.arange(maximum)[None] < length[:, None]).float()


class SynthesizerTrn(nn.Module):
    def __init__(self, symbols, mels, hidden, latent=16):
        super().__init__()
        self.emb = nn.Embedding(symbols, hidden)
        self.text = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.proj = nn.Conv1d(hidden, latent, 1)
        self.posterior = nn.Conv1d(mels, latent, 5, padding=2)
        self.decoder = nn.Conv1d(latent, mels, 5, padding=2)
        self.align = MonotonicAlign()

    def forward(self, text, text_len, mel, mel_len):
        x = F.relu(self.text(self.emb(text).transpose(1, 2)))
        m_p = self.proj(x)
        z = self.posterior(mel)
        x_mask, y_mask = sequence_mask(text_len, text.size(1)), sequence_mask(mel_len, mel.size(2))
        with torch.no_grad():
            cross = torch.matmul(z.transpose(1, 2), m_p)
            neg_cent = cross - 0.5 * (z ** 2).sum(1)[:, :, None] - 0.5 * (m_p ** 2).sum(1)[:, None, :]
            attn_mask = y_mask[:, :, None] * x_mask[:, None, :]
            attn = self.align.maximum_path(neg_cent, attn_mask)
        m_p = torch.matmul(attn, m_p.transpose(1, 2)).transpose(1, 2)
        kl = (((z - m_p) ** 2) * y_mask[:, None]).sum() / y_mask.sum()
        rec = F.l1_loss(self.decoder(z) * y_mask[:, None], mel)
        return rec, kl * 0.5


def main():
    h = HPARAMS
    torch.manual_seed(h["seed"])
    dataset = TextAudioDataset(h["clips"], h["symbols"], h["mels"], h["seed"])
    loader = DataLoader(dataset, batch_size=h["batch_size"], shuffle=True, collate_fn=collate, drop_last=True)
    net = SynthesizerTrn(h["symbols"], h["mels"], h["hidden"])
    optim = torch.optim.AdamW(net.parameters(), h["lr"], betas=(0.8, 0.99))
    log.info("%d clips, %d batches per epoch", len(dataset), len(loader))
    for epoch in range(h["epochs"]):
        start = time.time()
        for step, (text, text_len, mel, mel_len) in enumerate(loader):
            rec, kl = net(text, text_len, mel, mel_len)
            optim.zero_grad()
            (rec + kl).backward()
            grad = math.sqrt(sum(float(p.grad.pow(2).sum()) for p in net.parameters() if p.grad is not None))
            optim.step()
            log.info("epoch %d [%d/%d] mel %.3f kl %.3f grad %.2f", epoch, step, len(loader), rec.item(), kl.item(), grad)
        log.info("epoch %d finished in %.1fs", epoch, time.time() - start)


if __name__ == "__main__":
    main()
