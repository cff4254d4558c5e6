"""Extract log-mel features of a small speech corpus in parallel, then train a keyword model."""
import sys
import wave
from multiprocessing import Pool
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATE = 16000


def write_corpus(root, count):
    rng = np.random.default_rng(0)
    for i in range(count):
        rate = 44100 if i == 37 else RATE
        with wave.open(str(root / f"utt{i:03d}.wav"), "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(rate)
            f.writeframes((rng.standard_normal(rate) * 3000).astype(np.int16).tobytes())
    return sorted(root.glob("*.wav"))


def load_wav(path):
    with wave.open(str(path), "rb") as f:
        rate = f.getframerate()
        audio = np.frombuffer(f.readframes(f.getnframes()), dtype=np.int16)
    if rate != RATE:
        sys.stderr.write(f"{path.name}: {rate} Hz\n")
        sys.exit(1)
    return audio.astype(np.float32) / 32768


def extract(path):
    audio = load_wav(path)
    frames = np.lib.stride_tricks.sliding_window_view(audio, 400)[::160]
    power = np.abs(np.fft.rfft(frames * np.hanning(400), axis=1)) ** 2
    return np.log(power[:, :200].reshape(len(power), 40, 5).sum(2) + 1e-6).astype(np.float32)


class KeywordNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv1d(40, 32, 5)
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x.transpose(1, 2))).mean(2))


def train(features, labels, epochs=3):
    model = KeywordNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for x, y in zip(features.split(16), labels.split(16)):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


def main():
    files = write_corpus(Path(mkdtemp(prefix="speech_")), 64)
    print(f"{len(files)} files", flush=True)
    with Pool(2) as pool:
        mels = pool.map(extract, files, chunksize=4)
    features = torch.from_numpy(np.stack(mels))
    train(features, torch.randint(0, 4, (len(files),)))


if __name__ == "__main__":
    main()
