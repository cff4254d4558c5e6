"""Small CTC acoustic model trained from .lst manifests (id, audio path, duration, transcript)."""
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("asr")
HERE = Path(__file__).resolve().parent
ALPHABET = "|abcdefghijklmnoprstuvyz"
WORDS = ["merhaba", "bir", "kitap", "okul", "yol", "araba", "deniz", "masa", "kapi", "evde", "sabah", "gece"]
TRAIN_SPEAKERS = ["ayse", "mehmet", "zeynep", "hasan", "elif"]
VALID_SPEAKERS = ["fatma", "kemal", "ali riza"]
FRAME_SECONDS = 0.02


def load_reader(workdir):
    so = Path(workdir) / "liblistfile.so"
    subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", str(HERE / "a224_listfile.cpp"), "-o", str(so)], check=True)
    lib = ctypes.CDLL(str(so))
    lib.manifest_load.argtypes, lib.manifest_load.restype = [ctypes.c_char_p], ctypes.c_void_p
    lib.manifest_size.argtypes, lib.manifest_size.restype = [ctypes.c_void_p], ctypes.c_long
    for name, kind in (("audio", ctypes.c_char_p), ("duration", ctypes.c_double), ("text", ctypes.c_char_p)):
        function = getattr(lib, f"manifest_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_long], kind
    lib.manifest_free.argtypes, lib.manifest_free.restype = [ctypes.c_void_p], None
    return lib


def prepare_split(root, split, speakers, per_speaker, rng):
    lines = []
    for speaker in speakers:
        folder = root / split / speaker
        folder.mkdir(parents=True)
        for n in range(per_speaker):
            words = rng.choice(WORDS, size=3)
            text = "|".join(words)
            frames = 4 * len(text) + int(rng.integers(10, 30))
            codes = np.array([ALPHABET.index(c) for c in text])
            feats = rng.normal(size=(frames, 16)).astype(np.float32)
            feats[np.arange(len(codes)) * 4, codes % 16] += 4.0
            audio = folder / f"utt_{n:04d}.npy"
            np.save(audio, feats)
            lines.append(f"{split}-{len(lines):05d} {audio} {frames * FRAME_SECONDS:.2f} {' '.join(words)}")
    path = root / f"{split}.lst"
    path.write_text("\n".join(lines) + "\n")
    return path


class ManifestDataset(Dataset):
    def __init__(self, lib, path, max_seconds=20.0):
        handle = lib.manifest_load(str(path).encode())
        if not handle:
            raise FileNotFoundError(path)
        self.items = []
        for i in range(lib.manifest_size(handle)):
            if lib.manifest_duration(handle, i) <= max_seconds:
                self.items.append((lib.manifest_audio(handle, i).decode(), lib.manifest_text(handle, i).decode()))
        lib.manifest_free(handle)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        audio, text = self.items[i]
        target = [ALPHABET.index(c) + 1 for c in text.replace(" ", "|")]
        return torch.from_numpy(np.load(audio)), torch.tensor(target)


def collate(batch):
    feats = nn.utils.rnn.pad_sequence([f for f, _ in batch], batch_first=True)
    lengths = torch.tensor([len(f) for f, _ in batch])
    targets = torch.cat([t for _, t in batch])
    return feats, lengths, targets, torch.tensor([len(t) for _, t in batch])


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(16, 64, 5, padding=2)
        self.rnn = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, len(ALPHABET) + 1)

    def forward(self, feats):
        h = torch.relu(self.conv(feats.transpose(1, 2))).transpose(1, 2)
        return self.head(self.rnn(h)[0]).log_softmax(-1).transpose(0, 1)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as workdir:
        root = Path(workdir)
        lib = load_reader(workdir)
        train_list = prepare_split(root, "train", TRAIN_SPEAKERS, 60, rng)
        valid_list = prepare_split(root, "valid", VALID_SPEAKERS, 20, rng)
        train = DataLoader(ManifestDataset(lib, train_list), batch_size=16, shuffle=True, collate_fn=collate)
        model, ctc = Acoustic(), nn.CTCLoss(zero_infinity=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for epoch in range(2):
            for step, (feats, lengths, targets, target_lengths) in enumerate(train):
                loss = ctc(model(feats), targets, lengths, target_lengths)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            log.info("epoch %d train loss %.3f", epoch, loss.item())
            valid = DataLoader(ManifestDataset(lib, valid_list), batch_size=16, collate_fn=collate)
            model.eval()
            with torch.no_grad():
                losses = [ctc(model(f), t, n, m).item() for f, n, t, m in valid]
            model.train()
            log.info("epoch %d valid loss %.3f on %d utterances", epoch, sum(losses) / len(losses), len(valid.dataset))


if __name__ == "__main__":
    main()
