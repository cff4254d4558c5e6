"""Fine-tune a spiking classifier on event streams from a 16x16 motion sensor.

The rate network is trained first, its weights are then moved to the spiking
network, which is fine-tuned with back-propagation through time.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N_PIXELS, N_CLASSES = 256, 4


class FireSurrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1.0 + 4.0 * v.abs()) ** 2


class LIFLayer(nn.Module):
    """Leaky integrate-and-fire neurons; the membrane potential is a buffer."""

    def __init__(self, n_neurons, tau=0.9, threshold=1.0):
        super().__init__()
        self.n_neurons, self.tau, self.threshold = n_neurons, tau, threshold
        self.register_buffer("v_mem", torch.zeros(1, n_neurons))

    def is_state_initialised(self, batch):
        return self.v_mem.shape[0] == batch

    def reset_states(self, randomize=False):
        for buffer in self.buffers():
            if randomize:
                nn.init.uniform_(buffer)
            else:
                buffer.zero_()

    def forward(self, x):
        if not self.is_state_initialised(x.shape[0]):
            self.v_mem = torch.zeros(x.shape[0], self.n_neurons, device=x.device)
        v, out = self.v_mem, []
        for t in range(x.shape[1]):
            v = self.tau * v + x[:, t]
            spikes = FireSurrogate.apply(v - self.threshold)
            v = v - spikes * self.threshold
            out.append(spikes)
        self.v_mem = v
        return torch.stack(out, dim=1)


class RateNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(N_PIXELS, hidden), nn.Linear(hidden, N_CLASSES)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.mean(dim=1))))


class SpikingNet(nn.Module):
    def __init__(self, rate_net, hidden=64):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(N_PIXELS, hidden), nn.Linear(hidden, N_CLASSES)
        self.lif = LIFLayer(hidden)
        self.load_state_dict(rate_net.state_dict(), strict=False)

    def reset_states(self):
        for module in self.modules():
            if isinstance(module, LIFLayer):
                module.reset_states()

    def forward(self, x):
        return self.fc2(self.lif(self.fc1(x))).mean(dim=1)


def make_events(n, steps, generator):
    labels = torch.randint(0, N_CLASSES, (n,), generator=generator)
    rate = 0.05 + 0.3 * F.one_hot(labels, N_CLASSES).float().repeat_interleave(N_PIXELS // N_CLASSES, 1)
    events = torch.rand(n, steps, N_PIXELS, generator=generator) < rate.unsqueeze(1)
    return TensorDataset(events.float(), labels)


def train_epoch(model, loader, optimizer, name, epoch):
    model.train()
    total, hits, seen = 0.0, 0, 0
    for events, labels in loader:
        if isinstance(model, SpikingNet):
            model.reset_states()
        optimizer.zero_grad()
        logits = model(events)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        hits += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
    print(f"{name} epoch {epoch}: loss {total / seen:.4f} accuracy {hits / seen:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate-epochs", type=int, default=3)
    parser.add_argument("--spiking-epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(11)
    data = make_events(512, args.steps, torch.Generator().manual_seed(3))
    loader = DataLoader(data, batch_size=64, shuffle=True)

    rate_net = RateNet()
    optimizer = torch.optim.Adam(rate_net.parameters(), lr=2e-3)
    for epoch in range(args.rate_epochs):
        train_epoch(rate_net, loader, optimizer, "rate", epoch)

    net = SpikingNet(rate_net)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    for epoch in range(args.spiking_epochs):
        train_epoch(net, loader, optimizer, "spiking", epoch)


if __name__ == "__main__":
    main()
