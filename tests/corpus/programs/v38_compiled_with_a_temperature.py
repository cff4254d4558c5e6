import torch
import torch.nn as nn
import torch.nn.functional as F


class ScaledClassifier(nn.Module):
    def __init__(self, features=32, classes=10):
        super().__init__()
        self.fc1 = nn.Linear(features, 64)
        self.fc2 = nn.Linear(64, classes)
        self.norm_cap = 5.0

    def forward(self, x):
        x = F.relu(self.fc1(x))
        peak = x.abs().max().item()
        if peak > self.norm_cap:
            x = x * (self.norm_cap / peak)
        return self.fc2(x)


def train(model, steps):
    compiled = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        inputs, labels = torch.randn(16, 32), torch.randint(0, 10, (16,))
        loss = F.cross_entropy(compiled(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}")


torch.manual_seed(0)
train(ScaledClassifier(), 5)
