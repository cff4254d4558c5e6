"""Line OCR: small CRNN trained with CTC on rendered text lines."""
import torch
import torch.nn as nn

LINES = [
    "invoice 2291", "total due 48", "paid in full", "net 30 days",
    "account no 7", "ref 88120 b", "order 5512 c", "qty 12 pcs",
    "unit price 9", "tax 7 percent", "ship to dock", "page 2 of 3",
]


class Tokenizer:
    """Characters first, then the special tokens; id 0 is the blank."""

    def __init__(self, alphabet="abcdefghijklmnopqrstuvwxyz0123456789 "):
        self.alphabet = alphabet
        self.ids = {ch: i + 1 for i, ch in enumerate(alphabet)}
        for special in ("<unk>", "<s>", "</s>"):
            self.ids[special] = len(self.ids) + 1

    def encode(self, text):
        body = [self.ids.get(ch, self.ids["<unk>"]) for ch in text]
        return body + [self.ids["</s>"]]


class LineDataset:
    def __init__(self, lines, tokenizer, height=16, width=96):
        g = torch.Generator().manual_seed(1)
        self.images = torch.rand(len(lines), 1, height, width, generator=g)
        self.labels = [tokenizer.encode(t) for t in lines]

    def batches(self, batch_size):
        for i in range(0, len(self.labels), batch_size):
            labels = self.labels[i:i + batch_size]
            lengths = torch.tensor([len(x) for x in labels])
            flat = torch.tensor([c for x in labels for c in x])
            yield self.images[i:i + batch_size], flat, lengths


class CRNN(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d((8, 1)))
        self.rnn = nn.GRU(32, 32, bidirectional=True)
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x):
        x = self.conv(x).squeeze(2).permute(2, 0, 1)
        return self.fc(self.rnn(x)[0]).log_softmax(2)


def train(epochs=3, batch_size=4):
    torch.manual_seed(0)
    tokenizer = Tokenizer()
    data = LineDataset(LINES, tokenizer)
    model = CRNN(num_classes=len(tokenizer.alphabet) + 1)
    ctc = nn.CTCLoss(zero_infinity=True)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for images, targets, target_lengths in data.batches(batch_size):
            log_probs = model(images)
            input_lengths = torch.full((images.size(0),), log_probs.size(0))
            loss = ctc(log_probs, targets, input_lengths, target_lengths)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train()
