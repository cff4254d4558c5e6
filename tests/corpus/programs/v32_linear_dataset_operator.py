import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class LinearDataset(Dataset):
    def __init__(self, a, b, size=1000):
        x = np.arange(0, 10, 10 / size, dtype=np.float32)
        self.x = torch.from_numpy(x)
        self.y = torch.from_numpy(a * x + b)

    def __getitem__(self, index):
        return self.x[index, None], self.y[index, None]

    def __len__(self):
        return len(self.x)


class MyTrainingOperator:
    def __init__(self, config):
        torch.manual_seed(1)
        self.train_loader = DataLoader(LinearDataset(2, 5), batch_size=config["batch_size"])
        self.val_loader = DataLoader(LinearDataset(2, 5), batch_size=config["batch_size"])
        self.model = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.get("lr", 1e-4))
        self.criterion = torch.nn.BCELoss()
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=5, gamma=0.9)

    def train_batch(self, batch):
        features, target = batch
        output = self.model(features)
        loss = self.criterion(output, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train_epoch(self):
        losses = [self.train_batch(batch) for batch in self.train_loader]
        self.scheduler.step()
        return {"train_loss": sum(losses) / len(losses)}


operator = MyTrainingOperator({"lr": 1e-3, "batch_size": 64})
for epoch in range(10):
    print(epoch, operator.train_epoch())
