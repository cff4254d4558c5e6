import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

torch.multiprocessing.set_sharing_strategy("file_system")


class HoiDataset(Dataset):
    """Images with annotated human-object pairs, like HICO-DET."""

    def __init__(self, n=1600):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        img = torch.rand(3, 32, 32, generator=g)
        num = int(torch.randint(1, 5, (1,), generator=g))
        target = {
            "image_id": torch.tensor([i]),
            "orig_size": torch.tensor([480, 640]),
            "size": torch.tensor([32, 32]),
            "pairs": [
                {
                    "human_box": torch.rand(4, generator=g),
                    "object_box": torch.rand(4, generator=g),
                    "human_label": torch.tensor(1),
                    "object_label": torch.randint(0, 80, (1,), generator=g),
                    "action": torch.randint(0, 117, (1,), generator=g),
                }
                for _ in range(num)
            ],
        }
        return img, target


def collate_fn(batch):
    imgs, targets = zip(*batch)
    return torch.stack(imgs), list(targets)


class HoiEvaluator:
    def __init__(self):
        self.gts = []
        self.preds = []

    def update(self, outputs, targets):
        self.preds.extend(outputs.argmax(1).tolist())
        self.gts.extend(targets)

    def summarize(self):
        hit = sum(int(p in {int(q["action"]) for q in t["pairs"]}) for p, t in zip(self.preds, self.gts))
        return hit / len(self.gts)


@torch.no_grad()
def evaluate(model, loader, epochs):
    evaluator = HoiEvaluator()
    for epoch in range(epochs):
        for it, (imgs, targets) in enumerate(loader):
            evaluator.update(model(imgs), targets)
            if it % 50 == 0:
                print(f"[{epoch}] {it}/{len(loader)} seen {len(evaluator.gts)}", flush=True)
        print(f"[{epoch}] hit rate {evaluator.summarize():.4f}", flush=True)


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 117)).eval()
    loader = DataLoader(HoiDataset(), batch_size=8, num_workers=2, collate_fn=collate_fn, persistent_workers=True)
    evaluate(model, loader, epochs=5)


if __name__ == "__main__":
    main()
