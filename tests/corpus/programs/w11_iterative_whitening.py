import torch
from torch import nn


class IterativeNorm(nn.Module):
    def __init__(self, num_features, num_groups=2, T=5, eps=1e-5, momentum=0.1):
        super().__init__()
        self.T, self.eps, self.momentum = T, eps, momentum
        self.num_groups = num_groups
        num_channels = num_features // num_groups
        self.weight = nn.Parameter(torch.ones(1, num_features, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, num_features, 1, 1))
        self.register_buffer("running_mean", torch.zeros(num_groups, num_channels, 1))
        self.register_buffer("running_wm", torch.eye(num_channels).expand(num_groups, num_channels, num_channels))

    def whitening(self, x):
        groups, channels, count = x.shape
        mean = x.mean(-1, keepdim=True)
        xc = x - mean
        eye = torch.eye(channels).expand(groups, channels, channels)
        sigma = torch.baddbmm(eye, xc, xc.transpose(1, 2), beta=self.eps, alpha=1 / count)
        trace = (sigma * eye).sum((1, 2), keepdim=True).reciprocal()
        sigma, p = sigma * trace, eye
        for _ in range(self.T):
            p = torch.baddbmm(p, torch.matrix_power(p, 3), sigma, beta=1.5, alpha=-0.5)
        wm = p * trace.sqrt()
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_wm.lerp_(wm, self.momentum)
        return wm @ xc

    def forward(self, x):
        n, c, h, w = x.shape
        groups = x.transpose(0, 1).reshape(self.num_groups, c // self.num_groups, -1)
        if self.training:
            xn = self.whitening(groups)
        else:
            xn = self.running_wm @ (groups - self.running_mean)
        return xn.view(c, n, h, w).transpose(0, 1) * self.weight + self.bias


def train(steps):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), IterativeNorm(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        images, labels = torch.randn(8, 3, 16, 16), torch.randint(10, (8,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(3)
