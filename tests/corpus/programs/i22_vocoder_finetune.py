import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import weight_norm


class ResBlock(nn.Module):
    def __init__(self, channels, kernel_size=3):
        super().__init__()
        pad = kernel_size // 2
        self.conv1 = weight_norm(nn.Conv1d(channels, channels, kernel_size, padding=pad))
        self.conv2 = weight_norm(nn.Conv1d(channels, channels, kernel_size, padding=pad))

    def forward(self, x):
        y = self.conv1(F.leaky_relu(x, 0.1))
        return x + self.conv2(F.leaky_relu(y, 0.1))


class Generator(nn.Module):
    def __init__(self, n_mels=80, channels=256):
        super().__init__()
        self.conv_pre = weight_norm(nn.Conv1d(n_mels, channels, 7, padding=3))
        self.up = weight_norm(nn.ConvTranspose1d(channels, channels // 2, 16, 8, padding=4))
        self.res = nn.ModuleList(ResBlock(channels // 2) for _ in range(2))
        self.conv_post = weight_norm(nn.Conv1d(channels // 2, 1, 7, padding=3))

    def forward(self, mel):
        x = self.up(F.leaky_relu(self.conv_pre(mel), 0.1))
        for block in self.res:
            x = block(x)
        return torch.tanh(self.conv_post(F.leaky_relu(x, 0.1)))


def make_pretrained(path):
    torch.manual_seed(1)
    state = Generator().state_dict()
    exported = {}
    for name, value in state.items():
        exported[name] = value.mean().reshape(1, 1, 1) if name.endswith("weight_g") else value
    torch.save({"generator": exported}, path)


def load_generator(model, path):
    state = torch.load(path, map_location="cpu")["generator"]
    params = dict(model.named_parameters())
    loaded = 0
    for name, value in state.items():
        if name in params:
            params[name].data = value.clone()
            loaded += 1
    print(f"loaded {loaded}/{len(params)} tensors from {path}", flush=True)
    return model


def random_batch(batch_size=4, frames=32):
    return torch.randn(batch_size, 80, frames), torch.randn(batch_size, 1, frames * 8).clamp(-1, 1)


def train(steps=20, ckpt="/tmp/i22_g_02500000.pt"):
    make_pretrained(ckpt)
    model = load_generator(Generator(), ckpt)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.8, 0.99))
    for step in range(steps):
        mel, wav = random_batch()
        loss = F.l1_loss(model(mel), wav)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} mel loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train()
