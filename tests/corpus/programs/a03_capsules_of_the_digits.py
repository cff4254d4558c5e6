import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Progress:
    def __init__(self, iterable):
        self.iterable = iterable
        self.total = len(iterable)

    def __len__(self):
        return len(self.iterable)

    def __iter__(self):
        for item in self.iterable:
            yield item


class Engine:
    def __init__(self):
        self.hooks = {}

    def hook(self, name, state):
        if name in self.hooks:
            self.hooks[name](state)

    def train(self, network, iterator, maxepoch, optimizer):
        state = {"network": network, "iterator": iterator, "maxepoch": maxepoch,
                 "optimizer": optimizer, "epoch": 0, "loss": 0.0}
        while state["epoch"] < state["maxepoch"]:
            self.hook("on_start_epoch", state)
            for sample in state["iterator"]:
                loss = network(sample)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                state["loss"] = loss.item()
            state["epoch"] += 1
            self.hook("on_end_epoch", state)
        return state


class CapsuleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.primary = nn.Linear(16, 8)
        self.digits = nn.Linear(8, 10)

    def forward(self, sample):
        images, labels = sample
        return nn.functional.cross_entropy(self.digits(torch.relu(self.primary(images))), labels)


def on_start_epoch(state):
    state["iterator"] = Progress(state["iterator"])


def on_end_epoch(state):
    if state["epoch"] % 50 == 0:
        print(f"[Epoch {state['epoch']}] Training Loss: {state['loss']:.4f}", flush=True)


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16, 16), torch.randint(0, 10, (16,)))
    model = CapsuleNet()
    engine = Engine()
    engine.hooks["on_start_epoch"] = on_start_epoch
    engine.hooks["on_end_epoch"] = on_end_epoch
    engine.train(model, DataLoader(data, batch_size=16), 2000, torch.optim.Adam(model.parameters()))


if __name__ == "__main__":
    main()
