"""Licence plate reader: a small CRNN trained with CTC on rendered plates."""
import json
import random
import string
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

WORK = Path("/tmp/e52_plate_ocr_data")
BLANK = 0
FILL = torch.iinfo(torch.int32).max


class Alphabet:
    def __init__(self, symbols):
        self.symbols = symbols
        self.index = {s: i + 1 for i, s in enumerate(symbols)}

    def __len__(self):
        return len(self.symbols) + 1

    def encode(self, text):
        return torch.tensor([self.index[c] for c in text], dtype=torch.long)

    def decode(self, ids):
        out, last = [], BLANK
        for i in ids:
            if i != last and i != BLANK:
                out.append(self.symbols[i - 1])
            last = i
        return "".join(out)


def render(text, rng, height=32, cell=12):
    canvas = rng.normal(0.0, 0.05, size=(height, cell * 9)).astype(np.float32)
    for pos, char in enumerate(text):
        glyph = np.random.default_rng(ord(char)).random((height - 8, cell - 2)) > 0.55
        canvas[4:-4, pos * cell + 1:(pos + 1) * cell - 1] += glyph
    return canvas


def make_plates(region, count, length, seed):
    rng = random.Random(seed)
    noise = np.random.default_rng(seed)
    letters, digits = string.ascii_uppercase, string.digits
    folder = WORK / region
    folder.mkdir(parents=True, exist_ok=True)
    records = []
    for k in range(count):
        n = rng.choice(length)
        text = "".join(rng.choice(letters if j < 3 else digits) for j in range(n))
        path = folder / f"{k:04d}.npy"
        np.save(path, render(text, noise))
        records.append({"image": str(path), "text": text})
    (folder / "labels.json").write_text(json.dumps(records))
    return folder / "labels.json"


class PlateDataset(Dataset):
    def __init__(self, labels, alphabet):
        self.records = json.loads(Path(labels).read_text())
        self.alphabet = alphabet

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        rec = self.records[i]
        image = torch.from_numpy(np.load(rec["image"]))[None]
        return image, self.alphabet.encode(rec["text"])


def collate(samples):
    images, labels = zip(*samples)
    targets = pad_sequence(labels, batch_first=True, padding_value=FILL)
    lengths = torch.full((len(targets),), targets.size(1), dtype=torch.long)
    return torch.stack(images), targets, lengths


class CRNN(nn.Module):
    def __init__(self, classes, hidden=48):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.rnn = nn.GRU(32 * 8, hidden, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        f = self.features(x)
        f = f.permute(0, 3, 1, 2).flatten(2)
        return self.head(self.rnn(f)[0]).log_softmax(-1)


def run_epoch(model, loader, criterion, optimizer):
    total = 0.0
    for images, targets, lengths in loader:
        log_probs = model(images).transpose(0, 1)
        steps = torch.full((images.size(0),), log_probs.size(0), dtype=torch.long)
        loss = criterion(log_probs, targets, steps, lengths)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def preview(model, dataset, count=3):
    model.eval()
    for i in range(count):
        image, label = dataset[i]
        ids = model(image[None])[0].argmax(-1).tolist()
        print(f"   {dataset.alphabet.decode(label.tolist())} -> {dataset.alphabet.decode(ids)!r}")
    model.train()


def main():
    torch.manual_seed(3)
    alphabet = Alphabet(string.ascii_uppercase + string.digits)
    stages = [("north", make_plates("north", 64, [7], 11), 2),
              ("coast", make_plates("coast", 64, [7], 12), 1),
              ("islands", make_plates("islands", 64, [5, 6, 7], 13), 2)]
    model = CRNN(len(alphabet))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    for region, labels, epochs in stages:
        dataset = PlateDataset(labels, alphabet)
        loader = DataLoader(dataset, batch_size=16, shuffle=True, collate_fn=collate)
        for epoch in range(epochs):
            mean = run_epoch(model, loader, criterion, optimizer)
            print(f"{region} epoch {epoch} loss {mean:.3f}", flush=True)
        preview(model, dataset)
        torch.save(model.state_dict(), WORK / f"after_{region}.pt")
    print("finished", flush=True)


if __name__ == "__main__":
    main()
