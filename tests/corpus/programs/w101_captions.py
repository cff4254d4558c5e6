"""Line recogniser for scanned captions: column encoder + GRU, trained with CTC."""
import argparse
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CHARSET = "abcdefghijklmnopqrstuvwxyz '-."
WORDS = """oak elm mill lake hill park north south river church bridge market
station garden castle harbor forest meadow spring valley orchard chapel""".split()

CHAR_TO_ID = {ch: i + 1 for i, ch in enumerate(CHARSET)}
GLYPH_W = 4
HEIGHT = 12


def encode(text):
    return torch.tensor([CHAR_TO_ID[ch] for ch in text])


def single_words(count, rng):
    return [rng.choice(WORDS) for _ in range(count)]


def captions(count, rng):
    return [f"{rng.choice(WORDS)} {rng.choice(WORDS)}." for _ in range(count)]


class TextImages(Dataset):
    def __init__(self, texts):
        self.texts = sorted(texts, key=len)
        self.glyphs = {}
        for ch in CHARSET:
            g = torch.Generator().manual_seed(ord(ch))
            self.glyphs[ch] = torch.rand(HEIGHT, GLYPH_W, generator=g)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        text = self.texts[i]
        image = torch.cat([self.glyphs[ch] for ch in text], dim=1)
        return image + 0.05 * torch.randn_like(image), encode(text)


def collate(batch):
    images, labels = zip(*batch)
    width = max(im.shape[1] for im in images)
    x = torch.zeros(len(images), HEIGHT, width)
    for row, im in zip(x, images):
        row[:, :im.shape[1]] = im
    frames = torch.tensor([im.shape[1] // 2 for im in images])
    lengths = torch.tensor([len(t) for t in labels])
    return x, torch.cat(labels), frames, lengths


class Recogniser(nn.Module):
    def __init__(self, num_classes, hidden=32):
        super().__init__()
        self.columns = nn.Sequential(nn.Linear(2 * HEIGHT, hidden), nn.ReLU())
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True)
        self.head = nn.Linear(2 * hidden, num_classes)

    def forward(self, x):
        n, h, w = x.shape
        frames = x.reshape(n, h, w // 2, 2).permute(2, 0, 1, 3).reshape(w // 2, n, 2 * h)
        out, _ = self.rnn(self.columns(frames))
        return self.head(out).log_softmax(2)


def run_epoch(model, loader, criterion, optimizer, tag):
    total = 0.0
    for step, (x, target, frames, lengths) in enumerate(loader):
        log_probs = model(x)
        loss = criterion(log_probs, target, frames, lengths)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
        if step % 3 == 0:
            print(f"{tag} step {step:3d} loss {loss.item():.3f}", flush=True)
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--num-classes", type=int, default=27)
    parser.add_argument("--out", default="recogniser.pt")
    args = parser.parse_args()
    torch.manual_seed(0)
    rng = random.Random(0)

    model = Recogniser(args.num_classes)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    stages = {"words": single_words(64, rng), "captions": captions(64, rng)}
    for name, texts in stages.items():
        loader = DataLoader(TextImages(texts), args.batch_size, collate_fn=collate)
        for epoch in range(args.epochs):
            mean = run_epoch(model, loader, criterion, optimizer, f"{name} {epoch}")
            print(f"{name} epoch {epoch} mean loss {mean:.3f}", flush=True)
    torch.save(model.state_dict(), args.out)
    print("saved", args.out)


if __name__ == "__main__":
    main()
