"""Slim a weight-normed vocoder: drop the weakest output channels and fine-tune."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm


class ResBlock(nn.Module):
    def __init__(self, channels, hidden, kernel=3, dilation=1):
        super().__init__()
        pad = dilation * (kernel - 1) // 2
        self.conv1 = weight_norm(nn.Conv1d(channels, hidden, kernel, padding=pad, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(hidden, channels, kernel, padding=1))

    def forward(self, x):
        y = self.conv1(F.leaky_relu(x, 0.1))
        return x + self.conv2(F.leaky_relu(y, 0.1))


class Vocoder(nn.Module):
    def __init__(self, mels=40, channels=128, hidden=2048):
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(mels, channels, 7, padding=3))
        self.blocks = nn.ModuleList(ResBlock(channels, hidden, dilation=d) for d in (1, 3))
        self.post = weight_norm(nn.Conv1d(channels, 1, 7, padding=3))

    def forward(self, mel):
        x = self.pre(mel)
        for b in self.blocks:
            x = b(x)
        return torch.tanh(self.post(x))


def channel_gain(conv):
    return conv.weight_g.detach().flatten().abs()


def slim_block(block, keep):
    """Keep the `keep` strongest hidden channels of a residual block."""
    idx = channel_gain(block.conv1).topk(keep).indices.sort().values
    c1, c2 = block.conv1, block.conv2
    c1.weight_g = nn.Parameter(c1.weight_g.detach()[idx].clone())
    c1.bias = nn.Parameter(c1.bias.detach()[idx].clone())
    c1.out_channels = keep
    c2.weight_v = nn.Parameter(c2.weight_v.detach()[:, idx].clone())
    c2.in_channels = keep


def finetune(model, steps=5):
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(steps):
        mel, wav = torch.randn(2, 40, 64), torch.randn(2, 1, 64).tanh()
        loss = F.l1_loss(model(mel), wav)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    net = Vocoder()
    finetune(net, steps=2)
    for b in net.blocks:
        slim_block(b, keep=64)
    print("parameters after slimming:", sum(p.numel() for p in net.parameters()), flush=True)
    finetune(net)
