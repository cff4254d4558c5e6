import logging
import os
import tempfile

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("crnn")

ALPHABET = "0123456789ABCDEFGHJKLMNPRSTUVWXYZ"
CONFIG = {
    "batch": 16,
    "lr": 1e-3,
    "weight_decay": 1e-5,
    "lr_step": [3, 5],
    "lr_factor": 0.1,
    "end_epoch": 6,
    "epochs_per_job": 2,
}


class PlateLines(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        glyphs = torch.rand(len(ALPHABET), 16, 8, generator=torch.Generator().manual_seed(5)).round()
        self.codes = torch.randint(0, len(ALPHABET), (count, 6), generator=g)
        lines = torch.cat([glyphs[self.codes[:, k]] for k in range(6)], dim=2)
        self.images = (lines + 0.2 * torch.randn(lines.shape, generator=g)).unsqueeze(1)

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, i):
        return self.images[i], self.codes[i] + 1


class CRNN(nn.Module):
    def __init__(self, classes, hidden=48):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d((2, 1)),
            nn.Conv2d(48, 64, (4, 3), padding=(0, 1)), nn.ReLU(),
        )
        self.rnn = nn.LSTM(64, hidden, bidirectional=True)
        self.head = nn.Linear(hidden * 2, classes)

    def forward(self, x):
        feats = self.cnn(x).squeeze(2).permute(2, 0, 1)
        return self.head(self.rnn(feats)[0])


def decode(logits):
    best = logits.argmax(2).t()
    texts = []
    for row in best.tolist():
        chars = [c for k, c in enumerate(row) if c != 0 and (k == 0 or c != row[k - 1])]
        texts.append(chars)
    return texts


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = total = 0
    for images, codes in loader:
        for text, code in zip(decode(model(images)), codes.tolist()):
            right += text == code
            total += 1
    return right / total


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    running = 0.0
    for images, codes in loader:
        logits = model(images)
        steps = torch.full((len(images),), logits.size(0), dtype=torch.long)
        lengths = torch.full((len(images),), codes.size(1), dtype=torch.long)
        loss = criterion(logits.log_softmax(2), codes, steps, lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    return running / len(loader)


def run_job(cfg, output_dir):
    train = DataLoader(PlateLines(224, 1), batch_size=cfg["batch"], shuffle=True)
    valid = DataLoader(PlateLines(96, 2), batch_size=cfg["batch"])
    model = CRNN(len(ALPHABET) + 1)
    criterion = nn.CTCLoss(zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])

    best_acc, last_epoch = 0.0, 0
    state_file = os.path.join(output_dir, "checkpoint_latest.pth")
    if os.path.exists(state_file):
        checkpoint = torch.load(state_file)
        model.load_state_dict(checkpoint["state_dict"])
        last_epoch = checkpoint["epoch"]
        best_acc = checkpoint["best_acc"]
        log.info("=> loaded %s (epoch %d, best %.3f)", os.path.basename(state_file), last_epoch, best_acc)

    scheduler = MultiStepLR(optimizer, cfg["lr_step"], cfg["lr_factor"], last_epoch - 1)

    stop = min(cfg["end_epoch"], last_epoch + cfg["epochs_per_job"])
    for epoch in range(last_epoch, stop):
        loss = train_epoch(model, train, criterion, optimizer)
        scheduler.step()
        acc = validate(model, valid)
        best_acc = max(acc, best_acc)
        log.info("epoch %d lr %.1e loss %.4f acc %.3f", epoch, scheduler.get_last_lr()[0], loss, acc)
        torch.save({"state_dict": model.state_dict(), "epoch": epoch + 1, "best_acc": best_acc}, state_file)
    return stop


def main():
    torch.manual_seed(11)
    with tempfile.TemporaryDirectory() as output_dir:
        done, job = 0, 0
        while done < CONFIG["end_epoch"]:
            log.info("job slot %d", job)
            done = run_job(CONFIG, output_dir)
            job += 1
        log.info("training finished after %d epochs", done)


if __name__ == "__main__":
    main()
