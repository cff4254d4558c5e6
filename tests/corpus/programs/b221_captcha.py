import logging
import random
import string

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
log = logging.getLogger("captcha")

ALPHABET = string.digits + "abcdefhkmnpwxy"
IMAGE_HEIGHT, IMAGE_WIDTH = 32, 160
BATCH_SIZE = 16
NUM_WORKERS = 2
EPOCHS = 3


def read_labels(count, seed):
    rng = random.Random(seed)
    sizes = rng.choices((6, 7), weights=(1, 399), k=count)
    return ["".join(rng.choices(ALPHABET, k=size)) for size in sizes]


def draw(text, seed):
    rng = np.random.default_rng(seed)
    canvas = rng.normal(0.9, 0.05, size=(IMAGE_HEIGHT, IMAGE_WIDTH)).astype(np.float32)
    step = IMAGE_WIDTH // (len(text) + 1)
    for i, ch in enumerate(text):
        glyph = np.random.default_rng(ord(ch)).random((18, 14)) > 0.55
        top = int(rng.integers(2, IMAGE_HEIGHT - 20))
        left = step // 2 + i * step
        canvas[top:top + 18, left:left + 14][glyph] = 0.1
    return np.stack([canvas] * 3)


class CaptchaDataset(Dataset):
    def __init__(self, labels, encoder):
        self.labels = labels
        self.encoder = encoder

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, item):
        text = self.labels[item]
        image = draw(text, item)
        target = np.array([self.encoder[c] + 1 for c in text])
        return {
            "images": torch.tensor(image, dtype=torch.float),
            "targets": torch.tensor(target, dtype=torch.long),
        }


class CaptchaModel(nn.Module):
    def __init__(self, num_chars):
        super().__init__()
        self.conv_1 = nn.Conv2d(3, 32, kernel_size=3, padding=1)
        self.pool_1 = nn.MaxPool2d(2)
        self.conv_2 = nn.Conv2d(32, 32, kernel_size=3, padding=1)
        self.pool_2 = nn.MaxPool2d(2)
        self.linear_1 = nn.Linear(32 * (IMAGE_HEIGHT // 4), 64)
        self.drop_1 = nn.Dropout(0.2)
        self.lstm = nn.GRU(64, 32, bidirectional=True, num_layers=2, dropout=0.25)
        self.output = nn.Linear(64, num_chars + 1)

    def forward(self, images, targets=None):
        bs = images.size(0)
        x = self.pool_1(F.relu(self.conv_1(images)))
        x = self.pool_2(F.relu(self.conv_2(x)))
        x = x.permute(0, 3, 1, 2).reshape(bs, IMAGE_WIDTH // 4, -1)
        x = self.drop_1(F.relu(self.linear_1(x)))
        x, _ = self.lstm(x)
        x = self.output(x).permute(1, 0, 2)
        if targets is None:
            return x, None
        log_probs = F.log_softmax(x, 2)
        input_lengths = torch.full((bs,), log_probs.size(0), dtype=torch.int32)
        target_lengths = torch.full((bs,), targets.size(1), dtype=torch.int32)
        loss = nn.CTCLoss(blank=0)(log_probs, targets, input_lengths, target_lengths)
        return x, loss


def train_fn(model, loader, optimizer, epoch):
    model.train()
    total = 0.0
    for step, data in enumerate(loader):
        optimizer.zero_grad()
        _, loss = model(**data)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 10 == 0:
            log.info("epoch %d step %d/%d loss %.4f", epoch, step, len(loader), loss.item())
    return total / len(loader)


@torch.no_grad()
def eval_fn(model, loader):
    model.eval()
    return sum(model(**data)[1].item() for data in loader) / len(loader)


def run_training():
    torch.manual_seed(42)
    labels = read_labels(1200, seed=7)
    encoder = {c: i for i, c in enumerate(sorted(set("".join(labels))))}
    log.info("%d captchas, %d different characters", len(labels), len(encoder))
    train_set = CaptchaDataset(labels[:1100], encoder)
    test_set = CaptchaDataset(labels[1100:], encoder)
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, shuffle=False)

    model = CaptchaModel(num_chars=len(encoder))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.8, patience=5)
    for epoch in range(EPOCHS):
        train_loss = train_fn(model, train_loader, optimizer, epoch)
        test_loss = eval_fn(model, test_loader)
        log.info("epoch %d train loss %.4f test loss %.4f", epoch, train_loss, test_loss)
        scheduler.step(test_loss)


if __name__ == "__main__":
    run_training()
