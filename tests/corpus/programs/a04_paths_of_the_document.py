import torch
import torch.nn as nn


class PathReasoner(nn.Module):
    def __init__(self, hidden=64, relations=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.query = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1)
        self.classifier = nn.Linear(hidden, relations)

    def forward(self, paths, path_mask):
        b, n, t, d = paths.shape
        states = self.encoder(paths.view(b * n, t, d))
        states = states.mean(dim=1).view(b, n, -1)
        scores = self.score(torch.tanh(self.query(states)))
        scores_mask = scores.masked_fill(~path_mask.unsqueeze(-1), -1e9)
        weights = torch.softmax(scores_mask, dim=1)
        return self.classifier((weights * states).sum(dim=1))


def batches(steps, batch_size=4, max_paths=6):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        lengths = torch.randint(2, max_paths + 1, (batch_size,), generator=generator)
        mask = torch.arange(max_paths)[None, :] < lengths[:, None]
        paths = torch.randn(batch_size, max_paths, 10, 32, generator=generator)
        labels = torch.randint(0, 12, (batch_size,), generator=generator)
        yield paths, mask, labels


def train(model, use_amp, device="cpu"):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device, enabled=use_amp)
    criterion = nn.CrossEntropyLoss()
    for step, (paths, mask, labels) in enumerate(batches(20)):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16, enabled=use_amp):
            logits = model(paths, mask)
            loss = criterion(logits.float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train(PathReasoner(), use_amp=False)
    train(PathReasoner(), use_amp=True)
