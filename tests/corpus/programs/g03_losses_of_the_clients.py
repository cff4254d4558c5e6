import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Client:
    """One user of the federation with a private part of the data."""

    def __init__(self, model, samples):
        self.model = copy.deepcopy(model)
        self.x = torch.randn(samples, 20)
        self.y = torch.randint(0, 10, (samples,))

    def set_parameters(self, model):
        self.model.load_state_dict(model.state_dict())

    def train(self, epochs=2, lr=0.05):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.model.train()
        for _ in range(epochs):
            optimizer.zero_grad()
            F.cross_entropy(self.model(self.x), self.y).backward()
            optimizer.step()

    def test(self):
        self.model.eval()
        output = self.model(self.x)
        loss = F.cross_entropy(output, self.y)
        correct = (output.argmax(1) == self.y).sum().item()
        return correct, loss, len(self.y)


class Server:
    def __init__(self, model, sizes):
        self.model = model
        self.users = [Client(model, size) for size in sizes]

    def aggregate(self):
        states = [user.model.state_dict() for user in self.users]
        mean = {k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]}
        self.model.load_state_dict(mean)

    def evaluate(self):
        results = [user.test() for user in self.users]
        corrects, losses, samples = zip(*results)
        accuracy = np.sum(corrects) / np.sum(samples)
        loss = np.sum([n * value for n, value in zip(samples, losses)]).item() / np.sum(samples)
        print(f"Average Global Accuracy = {accuracy:.4f}, Loss = {loss:.2f}.")

    def run(self, rounds):
        for _ in range(rounds):
            for user in self.users:
                user.set_parameters(self.model)
                user.train()
            self.aggregate()
            self.evaluate()


if __name__ == "__main__":
    torch.manual_seed(0)
    Server(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10)), [40, 60, 25]).run(rounds=5)
