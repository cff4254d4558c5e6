import torch
from torch import nn


class RadialBasis(nn.Module):
    def __init__(self, num_rbf=16, cutoff=5.0):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0.0, cutoff, num_rbf))
        self.gamma = 4.0

    def forward(self, dist):
        return torch.exp(-self.gamma * (dist.unsqueeze(-1) - self.centers) ** 2)


class Potential(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rbf = RadialBasis()
        self.mlp = nn.Sequential(nn.Linear(16, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, pos):
        i, j = torch.triu_indices(pos.shape[1], pos.shape[1], offset=1)
        dist = (pos[:, i] - pos[:, j]).norm(dim=-1)
        return self.mlp(self.rbf(dist)).sum(dim=(1, 2))


def training_step(model, pos, energy, forces):
    pos.requires_grad_(True)
    pred_energy = model(pos)
    neg_dy = -torch.autograd.grad(pred_energy.sum(), pos, create_graph=True)[0]
    loss_e = nn.functional.mse_loss(pred_energy, energy)
    loss_f = nn.functional.mse_loss(neg_dy, forces)
    return 0.05 * loss_e + 0.95 * loss_f


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.compile(Potential(), backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(20):
        pos = torch.randn(8, 6, 3)
        energy, forces = torch.randn(8), torch.randn(8, 6, 3)
        loss = training_step(model, pos, energy, forces)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
