import os
import tempfile
import torch
from torch import nn


class DilatedInception(nn.Module):
    def __init__(self, cin, cout, dilation_factor=2):
        super().__init__()
        self.kernel_set = [2, 3, 6, 7]
        cout = cout // len(self.kernel_set)
        self.tconv = nn.ModuleList(nn.Conv2d(cin, cout, (1, k), dilation=(1, dilation_factor)) for k in self.kernel_set)

    def forward(self, input):
        x = []
        for i in range(len(self.kernel_set)):
            x.append(self.tconv[i](input))
        for i in range(len(self.kernel_set)):
            x[i] = x[i][..., -x[-1].size(3):]
        return torch.cat(x, dim=1)


class GTNet(nn.Module):
    def __init__(self, in_dim=1, channels=16, out_len=12):
        super().__init__()
        self.start_conv = nn.Conv2d(in_dim, channels, 1)
        self.filter_conv = DilatedInception(channels, channels)
        self.gate_conv = DilatedInception(channels, channels)
        self.end_conv = nn.Conv2d(channels, out_len, 1)

    def forward(self, x):
        x = self.start_conv(x)
        x = torch.tanh(self.filter_conv(x)) * torch.sigmoid(self.gate_conv(x))
        return self.end_conv(torch.relu(x))[..., -1:]


def train(model, steps=10):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x, y = torch.randn(4, 1, 20, 24), torch.randn(4, 12, 20, 1)
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"trained, mae {loss.item():.3f}")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GTNet()
    train(model)
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        scripted = torch.jit.script(model)
        scripted.save(os.path.join(folder, "gtnet.pt"))
        print("exported", os.path.getsize(os.path.join(folder, "gtnet.pt")), "bytes")


if __name__ == "__main__":
    main()
