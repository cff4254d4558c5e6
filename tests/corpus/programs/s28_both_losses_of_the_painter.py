import torch
import torch.nn as nn

torch.manual_seed(0)


def mlp(cin, cout, hidden=64):
    return nn.Sequential(nn.Linear(cin, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, cout))


class Adversaries:
    def __init__(self, noise=8, size=16):
        self.noise = noise
        self.painter, self.critic = mlp(noise, size), mlp(size, 1)
        self.opt_painter = torch.optim.Adam(self.painter.parameters(), lr=2e-4)
        self.opt_critic = torch.optim.Adam(self.critic.parameters(), lr=4e-4)
        self.bce = nn.BCEWithLogitsLoss()

    def losses(self, real):
        """Both losses, from one pass of the critic."""
        fake = self.painter(torch.randn(len(real), self.noise))
        on_real, on_fake = self.critic(real), self.critic(fake)
        for_critic = self.bce(on_real, torch.ones_like(on_real)) + self.bce(on_fake, torch.zeros_like(on_fake))
        for_painter = self.bce(on_fake, torch.ones_like(on_fake))
        return for_critic, for_painter

    def update(self, optimizer, loss, keep):
        optimizer.zero_grad()
        loss.backward(retain_graph=keep)
        optimizer.step()

    def step(self, real):
        for_critic, for_painter = self.losses(real)
        self.update(self.opt_critic, for_critic, keep=True)
        self.update(self.opt_painter, for_painter, keep=False)
        return for_critic.item(), for_painter.item()


def waves(n=32, size=16):
    phase = torch.rand(n, 1) * 6.28
    return torch.sin(torch.linspace(0, 6.28, size) + phase)


def main():
    game = Adversaries()
    for step in range(200):
        c, p = game.step(waves())
        if step % 50 == 0:
            print("step", step, round(c, 3), round(p, 3), flush=True)


if __name__ == "__main__":
    main()
