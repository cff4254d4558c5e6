import torch
from torch import nn

CHARSET = "abcdefghijklmnopqrstuvwxyz0123456789 .,'-"
BLANK = 0


class LineReader(nn.Module):
    def __init__(self, num_classes, hidden=96):
        super().__init__()
        self.encoder = nn.LSTM(32, hidden, bidirectional=True)
        self.head = nn.Linear(2 * hidden, num_classes)

    def forward(self, strips):
        features, _ = self.encoder(strips)
        return self.head(features).log_softmax(2)


def encode(texts):
    codes = [[ord(c) for c in text] for text in texts]
    lengths = torch.tensor([len(c) for c in codes])
    flat = torch.tensor([c for line in codes for c in line])
    return flat, lengths


def batches(count, size=16, width=64):
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        texts = []
        for _ in range(size):
            picks = torch.randint(0, len(CHARSET), (18,), generator=generator).tolist()
            texts.append("".join(CHARSET[i] for i in picks))
        yield torch.randn(width, size, 32, generator=generator), texts


def train():
    torch.manual_seed(0)
    model = LineReader(num_classes=len(CHARSET) + 1)
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (strips, texts) in enumerate(batches(60)):
        log_probs = model(strips)
        targets, target_lengths = encode(texts)
        input_lengths = torch.full((log_probs.size(1),), log_probs.size(0))
        loss = criterion(log_probs, targets, input_lengths, target_lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    train()
