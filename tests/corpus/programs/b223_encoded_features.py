import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SensorWindows(Dataset):
    def __init__(self, n, seed, features=120, classes=5):
        rng = np.random.default_rng(seed)
        basis = np.random.default_rng(0).normal(size=(classes, 8, features))
        self.y = torch.from_numpy(rng.integers(0, classes, size=n))
        weights = rng.normal(1.0, 0.6, size=(n, 8))
        x = np.einsum("nk,nkf->nf", weights, basis[self.y.numpy()]) + rng.normal(0, 0.8, size=(n, features))
        self.x = torch.from_numpy(((x - x.mean(0)) / x.std(0)).astype(np.float32))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Autoencoder(nn.Module):
    def __init__(self, features, code):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 256), nn.ReLU(), nn.Linear(256, code), nn.Tanh())
        self.decoder = nn.Sequential(nn.Linear(code, 256), nn.ReLU(), nn.Linear(256, features))

    def forward(self, x):
        code = self.encoder(x)
        return code, nn.functional.mse_loss(self.decoder(code), x)


class ActivityClassifier(nn.Module):
    def __init__(self, code, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(code, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, classes))

    def forward(self, x, y):
        logits = self.layers(x)
        loss = nn.functional.cross_entropy(logits, y)
        return logits, loss, (logits.argmax(1) == y).float().mean().item()


def train_autoencoder(model, dataset, epochs, lr):
    loader = DataLoader(dataset, batch_size=128, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for x, _ in loader:
            _, loss = model(x)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"autoencoder epoch {epoch}: reconstruction {total / len(loader):.4f}", flush=True)


def train_classifier(model, x_train, y_train, x_val, y_val, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(len(x_train))
        seen, correct, total = 0, 0.0, 0.0
        for start in range(0, len(order), args.batch_size):
            idx = order[start:start + args.batch_size]
            _, loss, acc = model(x_train[idx], y_train[idx])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            seen += len(idx)
            correct += acc * len(idx)
            total += loss.item() * len(idx)
        model.eval()
        with torch.no_grad():
            _, val_loss, val_acc = model(x_val, y_val)
        print(f"classifier epoch {epoch}: loss {total / seen:.4f} acc {correct / seen:.3f} "
              f"val loss {val_loss.item():.4f} val acc {val_acc:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--code", type=int, default=24)
    parser.add_argument("--ae-epochs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    train_set, val_set = SensorWindows(16000, seed=1), SensorWindows(2000, seed=2)
    autoencoder = Autoencoder(train_set.x.shape[1], args.code)
    train_autoencoder(autoencoder, train_set, args.ae_epochs, args.lr)

    autoencoder.eval()
    x_train, train_rec = autoencoder(train_set.x)
    x_val, val_rec = autoencoder(val_set.x)
    print(f"encoded {tuple(x_train.shape)} / {tuple(x_val.shape)}, "
          f"reconstruction {train_rec.item():.4f} / {val_rec.item():.4f}", flush=True)

    classifier = ActivityClassifier(args.code, classes=5)
    train_classifier(classifier, x_train, train_set.y, x_val, val_set.y, args)


if __name__ == "__main__":
    main()
