import torch

from p72_lib.data import Catalog, split_by_time
from p72_lib.model import ItemTower
from p72_lib.train import TripletTrainer


def main():
    torch.manual_seed(5)
    catalog = Catalog(n_items=1500, n_brands=24, dim=32, seed=11)
    train_idx, val_idx = split_by_time(catalog, val_fraction=0.12)
    print(f"items: train {len(train_idx)} val {len(val_idx)} brands {catalog.n_brands}", flush=True)

    model = ItemTower(dim=32, out=24)
    trainer = TripletTrainer(model, catalog, lr=2e-3)
    for epoch in range(3):
        loss = trainer.train_epoch(train_idx, batch_size=64)
        print(f"epoch {epoch} train loss {loss:.4f}", flush=True)
    val_loss = trainer.validate(val_idx, batch_size=64)
    print(f"val loss {val_loss:.4f}", flush=True)
    torch.save(model.state_dict(), "/tmp/p72_tower.pt")
    print("saved", flush=True)


if __name__ == "__main__":
    main()
