"""Pre-compute log-mel features for a speech corpus and train a tiny tagger."""
import multiprocessing
import os
import sys
import tempfile
import wave

import numpy as np
import torch
from torch import nn

SAMPLE_RATE = 16000


def make_corpus(root, n=40):
    rng = np.random.default_rng(0)
    paths = []
    for i in range(n):
        path = os.path.join(root, f"utt{i:03d}.wav")
        with wave.open(path, "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(SAMPLE_RATE if i % 17 != 16 else 44100)
            f.writeframes((rng.standard_normal(SAMPLE_RATE) * 3000).astype(np.int16).tobytes())
        paths.append(path)
    return paths


def check(condition):
    if not condition:
        sys.exit(1)


def load_wav(path):
    with wave.open(path, "rb") as f:
        check(f.getnchannels() == 1)
        check(f.getframerate() == SAMPLE_RATE)
        samples = np.frombuffer(f.readframes(f.getnframes()), dtype=np.int16)
    return torch.from_numpy(samples.astype(np.float32) / 32768)


def extract(path):
    torch.set_num_threads(1)
    wav = load_wav(path)
    spec = torch.stft(wav, 400, 160, window=torch.hann_window(400), return_complex=True)
    mel = torch.log(spec.abs().pow(2) + 1e-6)[:80]
    out = path.replace(".wav", ".npy")
    np.save(out, mel.numpy())
    return out


def main():
    root = tempfile.mkdtemp()
    paths = make_corpus(root)
    print(f"extracting {len(paths)} utterances", flush=True)
    with multiprocessing.Pool(2) as pool:
        feats = pool.map(extract, paths, chunksize=4)

    x = torch.stack([torch.from_numpy(np.load(f)).mean(dim=1) for f in feats])
    y = torch.arange(len(feats)) % 2
    model = nn.Linear(80, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(20):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
