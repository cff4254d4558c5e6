import string

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = string.digits + string.ascii_lowercase


class PlateDataset(Dataset):
    """Synthetic licence plates: a 32x100 grey picture and its text."""

    def __init__(self, n=480, length=7):
        g = torch.Generator().manual_seed(7)
        chars = string.digits + string.ascii_uppercase
        picks = torch.randint(0, len(chars), (n, length), generator=g)
        self.texts = ["".join(chars[int(c)] for c in row) for row in picks]
        self.images = torch.rand(n, 1, 32, 100, generator=g)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        label = torch.tensor([ord(c) for c in self.texts[i]], dtype=torch.long)
        return self.images[i], label


class CRNN(nn.Module):
    def __init__(self, num_classes, hidden=64):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((2, 1)),
        )
        self.rnn = nn.GRU(32 * 8, hidden, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, num_classes)

    def forward(self, x):
        f = self.cnn(x)
        b, c, h, w = f.shape
        seq, _ = self.rnn(f.permute(3, 0, 1, 2).reshape(w, b, c * h))
        return self.fc(seq)


def train(epochs=3, batch_size=16):
    torch.manual_seed(0)
    model = CRNN(num_classes=len(ALPHABET) + 1)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(PlateDataset(), batch_size=batch_size, shuffle=True)
    for epoch in range(epochs):
        for step, (images, labels) in enumerate(loader):
            log_probs = model(images).log_softmax(2)
            width = torch.full((images.size(0),), log_probs.size(0), dtype=torch.long)
            lens = torch.full((images.size(0),), labels.size(1), dtype=torch.long)
            loss = criterion(log_probs, labels, width, lens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), "/tmp/crnn_plates.pt")


if __name__ == "__main__":
    train()
