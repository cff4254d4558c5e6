import argparse

import torch

from p71_lib.data import make_loaders
from p71_lib.model import PatchEncoder, PrototypeHead
from p71_lib.train import Trainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--classes", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--warmup-epochs", type=int, default=1)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(17)
    train_loader, val_loader = make_loaders(args.batch_size, args.classes)
    encoder = PatchEncoder(in_dim=48, dim=96, tokens=65)
    head = PrototypeHead(dim=96, classes=args.classes)
    trainer = Trainer(encoder, head, lr=args.lr, warmup_epochs=args.warmup_epochs)
    for epoch in range(args.epochs):
        loss = trainer.fit_epoch(train_loader, epoch)
        acc = trainer.evaluate(val_loader)
        print(f"epoch {epoch} loss {loss:.4f} val_acc {acc:.3f}", flush=True)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
