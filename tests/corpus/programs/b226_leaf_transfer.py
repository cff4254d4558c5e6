import logging

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


class cfg:
    SOURCE_CLASSES = 12
    NUM_CLASSES = 4
    BATCH_SIZE = 32
    LR = 1e-3
    PRETRAIN_EPOCHS = 2
    MAX_EPOCH = 3


class LeafImages(Dataset):
    def __init__(self, n, classes, seed):
        g = torch.Generator().manual_seed(seed)
        patterns = torch.randn(classes, 3, 32, 32, generator=torch.Generator().manual_seed(classes))
        self.labels = torch.randint(0, classes, (n,), generator=g)
        self.images = 0.5 * patterns[self.labels] + torch.randn(n, 3, 32, 32, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class SmallResNet(nn.Module):
    def __init__(self, num_classes, width=32):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(width * 16, num_classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(x + self.bn2(self.conv2(x)))
        return self.fc(self.pool(x).flatten(1))


class LeafClassifier(nn.Module):
    def __init__(self, backbone, num_classes):
        super().__init__()
        self.features = nn.Sequential(backbone.conv1, backbone.bn1, nn.ReLU(),
                                      backbone.conv2, backbone.bn2, nn.ReLU(), backbone.pool, nn.Flatten())
        self.classifier = nn.Sequential(nn.Linear(backbone.fc.in_features, 64), nn.ReLU(),
                                        nn.Dropout(0.3), nn.Linear(64, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


def set_parameter_requires_grad(model, trainable):
    for param in model.parameters():
        param.requires_grad = trainable


def run_epoch(net, loader, criterion, optimizer=None):
    net.train(optimizer is not None)
    total, hits, seen = 0.0, 0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for images, labels in loader:
            outputs = net(images)
            loss = criterion(outputs, labels)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(labels)
            hits += (outputs.argmax(1) == labels).sum().item()
            seen += len(labels)
    return total / seen, hits / seen


def pretrain():
    loader = DataLoader(LeafImages(3000, cfg.SOURCE_CLASSES, seed=1), batch_size=cfg.BATCH_SIZE, shuffle=True)
    model = SmallResNet(cfg.SOURCE_CLASSES)
    optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(cfg.PRETRAIN_EPOCHS):
        loss, acc = run_epoch(model, loader, nn.CrossEntropyLoss(), optimizer)
        logging.info("pretrain epoch %d: loss %.4f acc %.3f", epoch, loss, acc)
    return model


def load_model():
    model = pretrain()
    set_parameter_requires_grad(model, trainable=False)
    net = LeafClassifier(model, cfg.NUM_CLASSES)
    return model, net


def main():
    torch.manual_seed(5)
    model, net = load_model()
    train_loader = DataLoader(LeafImages(800, cfg.NUM_CLASSES, seed=2), batch_size=cfg.BATCH_SIZE, shuffle=True)
    val_loader = DataLoader(LeafImages(200, cfg.NUM_CLASSES, seed=3), batch_size=cfg.BATCH_SIZE)
    criterion = nn.CrossEntropyLoss()
    val_loss, val_acc = run_epoch(net, val_loader, criterion)
    logging.info("before fine-tuning: val loss %.4f val acc %.3f", val_loss, val_acc)
    optimizer = optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=cfg.LR)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    for epoch in range(cfg.MAX_EPOCH):
        loss, acc = run_epoch(net, train_loader, criterion, optimizer)
        val_loss, val_acc = run_epoch(net, val_loader, criterion)
        scheduler.step()
        logging.info("epoch %d: loss %.4f acc %.3f val loss %.4f val acc %.3f", epoch, loss, acc, val_loss, val_acc)


if __name__ == "__main__":
    main()
