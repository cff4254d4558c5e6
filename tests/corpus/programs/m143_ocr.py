"""Train a small CRNN on synthetic licence tags (pretrain on lower case, then fine-tune on real tags)."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

LOWER = "0123456789abcdefghijklmnopqrstuvwxyz"
FULL = LOWER + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class LabelConverter:
    """Characters to indices, index 0 is the CTC blank."""

    def __init__(self, alphabet):
        self.alphabet = alphabet
        self.index = {c: i + 1 for i, c in enumerate(alphabet)}

    def encode(self, text):
        return [self.index[c] for c in text]

    def decode(self, ids):
        out, last = [], 0
        for i in ids:
            if i != last and i != 0:
                out.append(self.alphabet[i - 1])
            last = i
        return "".join(out)


class TagDataset(Dataset):
    def __init__(self, size, alphabet, converter, seed, width=96, height=16):
        rng = random.Random(seed)
        self.texts = ["".join(rng.choice(alphabet) for _ in range(rng.randint(4, 8))) for _ in range(size)]
        self.converter = converter
        self.width, self.height = width, height

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        text = self.texts[i]
        img = np.zeros((1, self.height, self.width), dtype=np.float32)
        for k, c in enumerate(text):
            g = np.random.RandomState(ord(c)).rand(self.height - 4, 8).astype(np.float32)
            img[0, 2:-2, 4 + k * 11:12 + k * 11] = g
        return torch.from_numpy(img), self.converter.encode(text)


def collate(batch):
    images = torch.stack([b[0] for b in batch])
    lengths = torch.tensor([len(b[1]) for b in batch])
    targets = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)
    for row, (_, ids) in zip(targets, batch):
        row[:len(ids)] = torch.tensor(ids)
    return images, targets, lengths


class CRNN(nn.Module):
    def __init__(self, num_classes, hidden=48):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.rnn = nn.GRU(32 * 4, hidden, bidirectional=True)
        self.head = nn.Linear(2 * hidden, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        b, c, h, w = x.shape
        x = x.permute(3, 0, 1, 2).reshape(w, b, c * h)
        x, _ = self.rnn(x)
        return self.head(x)


def run_epoch(model, loader, optimizer, name, epoch):
    total = 0.0
    for images, targets, lengths in loader:
        logits = model(images)
        log_probs = logits.log_softmax(2)
        input_lengths = torch.full((images.size(0),), log_probs.size(0), dtype=torch.long)
        loss = F.ctc_loss(log_probs, targets, input_lengths, lengths, blank=0, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.item()
    print(f"{name} epoch {epoch}: loss {total / len(loader):.4f}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--num-classes", type=int, default=37)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()

    torch.manual_seed(7)
    torch.set_num_threads(1)
    converter = LabelConverter(FULL)
    model = CRNN(args.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    pretrain = DataLoader(TagDataset(240, LOWER, converter, seed=1), args.batch_size, collate_fn=collate)
    finetune = DataLoader(TagDataset(240, FULL, converter, seed=2), args.batch_size, collate_fn=collate)
    for epoch in range(args.epochs):
        run_epoch(model, pretrain, optimizer, "pretrain", epoch)
    for epoch in range(args.epochs):
        run_epoch(model, finetune, optimizer, "finetune", epoch)
    torch.save(model.state_dict(), "crnn_tags.pt")
    print("saved crnn_tags.pt")


if __name__ == "__main__":
    main()
