import os
import wave

import numpy as np
import torch
import torch.nn as nn

ROOT = "/tmp/d42_frames_corpus"
SR = 16000


def write_wav(path, samples, channels):
    with wave.open(path, "wb") as w:
        w.setnchannels(channels)
        w.setsampwidth(2)
        w.setframerate(SR)
        w.writeframes(samples.astype("<i2").tobytes())


def make_corpus():
    os.makedirs(ROOT, exist_ok=True)
    rng = np.random.default_rng(3)
    entries = []
    for k in range(6):
        n = SR * (20 + 5 * k)
        t = np.arange(n) / SR
        x = 6000 * np.sin(2 * np.pi * (180 + 40 * k) * t) + rng.normal(0, 400, n)
        path = os.path.join(ROOT, f"utt_{k:02d}.wav")
        write_wav(path, x, 1)
        entries.append((path, k % 2))
    n = SR * 60 * 14
    t = np.arange(n) / SR
    left = 5000 * np.sin(2 * np.pi * 210 * t)
    right = 4000 * np.sin(2 * np.pi * 330 * t)
    path = os.path.join(ROOT, "meeting_00.wav")
    write_wav(path, np.stack([left, right], axis=1), 2)
    entries.append((path, 1))
    return entries


def read_audio(path):
    with wave.open(path, "rb") as w:
        raw = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        if w.getnchannels() > 1:
            raw = raw.reshape(-1, w.getnchannels())
    return raw.astype(np.float32) / 32768.0


def pre_emphasis(sig, coeff=0.97):
    out = sig.copy()
    out[1:] -= coeff * sig[:-1]
    return out


def stride_trick(a, stride_length, stride_step):
    nrows = ((a.size - stride_length) // stride_step) + 1
    n = a.strides[0]
    return np.lib.stride_tricks.as_strided(
        a, shape=(nrows, stride_length), strides=(stride_step * n, n), writeable=False)


class FrameExtractor:
    def __init__(self, win_len=0.025, win_hop=0.010, n_fft=512, n_bands=24):
        self.length = int(win_len * SR)
        self.step = int(win_hop * SR)
        self.n_fft = n_fft
        self.window = np.hamming(self.length).astype(np.float32)
        edges = np.linspace(0, n_fft // 2 + 1, n_bands + 1).astype(int)
        self.bands = list(zip(edges[:-1], edges[1:]))

    def band_energies(self, frames):
        spec = np.fft.rfft(frames * self.window, n=self.n_fft)
        power = (spec.real ** 2 + spec.imag ** 2).astype(np.float32)
        return np.stack([power[:, a:b].sum(1) for a, b in self.bands], axis=1)

    def __call__(self, path):
        sig = pre_emphasis(read_audio(path))
        frames = stride_trick(sig, self.length, self.step)
        feats = [self.band_energies(frames[i:i + 2000]) for i in range(0, len(frames), 2000)]
        return np.log(np.concatenate(feats) + 1e-8)


class SpeechNet(nn.Module):
    def __init__(self, n_bands=24, hidden=48):
        super().__init__()
        self.gru = nn.GRU(n_bands, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.out(self.gru(x)[0].mean(1))


def train_step(model, opt, feats, label):
    x = torch.from_numpy(feats)
    x = (x - x.mean(0)) / (x.std(0) + 1e-5)
    usable = len(x) // 100 * 100
    x = x[:usable].view(-1, 100, x.shape[1])
    y = torch.full((len(x),), label)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item(), len(x)


def main():
    torch.manual_seed(0)
    corpus = make_corpus()
    print("corpus ready:", len(corpus), "recordings", flush=True)
    extract = FrameExtractor()
    model = SpeechNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for path, label in corpus:
            feats = extract(path)
            loss, n = train_step(model, opt, feats, label)
            print(f"epoch {epoch} {os.path.basename(path)} {n} segments loss {loss:.4f}", flush=True)
    torch.save(model.state_dict(), os.path.join(ROOT, "model.pt"))
    print("saved")


if __name__ == "__main__":
    main()
