import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class GhostBatchNorm2d(nn.Module):
    """Normalizes every virtual batch by itself, keeps running statistics for evaluation."""

    def __init__(self, num_features, virtual_batch_size=16, momentum=0.1, eps=1e-5):
        super().__init__()
        self.virtual_batch_size = virtual_batch_size
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x):
        if not self.training:
            mean, var = self.running_mean, self.running_var
            y = (x - mean.view(1, -1, 1, 1)) / torch.sqrt(var.view(1, -1, 1, 1) + self.eps)
            return y * self.weight + self.bias
        out = []
        for chunk in x.split(self.virtual_batch_size):
            with torch.no_grad():
                torch.batch_norm_update_stats(chunk, self.running_mean, self.running_var, self.momentum)
            mean = chunk.mean((0, 2, 3), keepdim=True)
            var = chunk.var((0, 2, 3), unbiased=False, keepdim=True)
            out.append((chunk - mean) / torch.sqrt(var + self.eps))
        return torch.cat(out) * self.weight + self.bias


def conv_bn(cin, cout, norm_features, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
                         GhostBatchNorm2d(norm_features), nn.ReLU(inplace=True))


class WideNet(nn.Module):
    def __init__(self, base=16, widen_factor=8, num_classes=10):
        super().__init__()
        w = base * widen_factor
        self.stem = conv_bn(3, base, base)
        self.layer1 = conv_bn(base, w, base, stride=2)
        self.layer2 = conv_bn(w, 2 * w, 2 * base, stride=2)
        self.head = nn.Linear(2 * w, num_classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def train(epochs=3):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 3, 32, 32), torch.randint(0, 10, (256,)))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = WideNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    train()
