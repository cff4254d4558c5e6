import argparse

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Fire(nn.Module):
    def __init__(self, inplanes, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(inplanes, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.relu(torch.cat([self.expand1(x), self.expand3(x)], 1))


class SqueezeNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            Fire(32, 8, 16), Fire(32, 8, 32), nn.MaxPool2d(2), Fire(64, 16, 32),
        )
        self.conv2 = nn.Conv2d(64, num_classes, 1)
        self.avg_pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.avg_pool(torch.relu(self.conv2(self.features(x))))


parser = argparse.ArgumentParser(description="Train a squeezenet for CIFAR-10")
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--num_classes", type=int, default=10)
parser.add_argument("--epoch", type=int, default=2)
parser.add_argument("--learning_rate", type=float, default=0.001)
args = parser.parse_args()

torch.manual_seed(0)
images = torch.rand(400, 3, 32, 32)
labels = torch.randint(0, args.num_classes, (400,))
train_loader = DataLoader(TensorDataset(images, labels), batch_size=args.batch_size, shuffle=True)
net = SqueezeNet(args.num_classes)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(net.parameters(), lr=args.learning_rate)


def train(epoch):
    net.train()
    correct = 0
    for b_idx, (data, targets) in enumerate(train_loader):
        optimizer.zero_grad()
        scores = net.forward(data)
        scores = scores.view(args.batch_size, args.num_classes)
        loss = criterion(scores, targets)
        loss.backward()
        optimizer.step()
        correct += (scores.argmax(1) == targets).sum().item()
        if b_idx % 2 == 0:
            print("Train Epoch: {} [{}/{}]\tLoss: {:.6f}".format(
                epoch, (b_idx + 1) * len(data), len(train_loader.dataset), loss.item()))
    return correct / len(train_loader.dataset)


train_acc = []
for i in range(1, args.epoch + 1):
    train_acc.append(train(i))
