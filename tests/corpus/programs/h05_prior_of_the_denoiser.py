import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.head = nn.Conv2d(1, channels, 3, padding=1)
        self.tail = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x, sigma):
        return x - sigma * self.tail(torch.relu(self.head(x)))


class GradientStepPrior(nn.Module):
    def __init__(self, denoiser, alpha=1.0, train=False):
        super().__init__()
        self.denoiser = denoiser
        self.alpha = alpha
        self.train = train

    def potential(self, x, sigma):
        residual = x - self.denoiser(x, sigma)
        return 0.5 * self.alpha * residual.square().sum()

    def forward(self, x, sigma):
        with torch.enable_grad():
            x = x.requires_grad_()
            gradient = torch.autograd.grad(self.potential(x, sigma), x, create_graph=self.train)[0]
        return x - gradient


class Reconstructor(nn.Module):
    def __init__(self, prior, iterations=4):
        super().__init__()
        self.prior = prior
        self.iterations = iterations
        self.stepsize = nn.Parameter(torch.tensor(0.5))

    def forward(self, y):
        x = y.clone()
        for _ in range(self.iterations):
            x = self.prior(x - self.stepsize * (x - y), 0.1)
        return x


def main():
    torch.manual_seed(0)
    prior = GradientStepPrior(Denoiser(), train=True)
    model = Reconstructor(prior)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(3):
        clean = torch.rand(2, 1, 32, 32)
        loss = (model(clean + 0.1 * torch.randn_like(clean)) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.5f}")
    model.eval()
    with torch.no_grad():
        print("validation", (model(clean) - clean).square().mean().item())


if __name__ == "__main__":
    main()
