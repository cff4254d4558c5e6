import logging

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("sft")
VOCAB, DIM, IMAGE_TOKENS = 128, 48, 4


class ChatDataset(Dataset):
    def __init__(self, n=160, length=24, image_ratio=0.6):
        g = torch.Generator().manual_seed(21)
        self.ids = torch.randint(1, VOCAB, (n, length), generator=g)
        self.has_image = torch.rand(n, generator=g) < image_ratio
        self.pixels = torch.rand(n, 3, 16, 16, generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        sample = {"input_ids": self.ids[i]}
        if self.has_image[i]:
            sample["pixel_values"] = self.pixels[i]
        return sample


def collate(samples):
    batch = {"input_ids": torch.stack([s["input_ids"] for s in samples])}
    rows = [i for i, s in enumerate(samples) if "pixel_values" in s]
    if rows:
        batch["image_rows"] = torch.tensor(rows)
        batch["pixel_values"] = torch.stack([samples[i]["pixel_values"] for i in rows])
    return batch


class VisionTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 96, 8, 8)
        self.block = nn.TransformerEncoderLayer(96, 4, 384, batch_first=True, dropout=0.0)
        self.merger = nn.Linear(96, DIM)

    def forward(self, pixels):
        x = self.patch(pixels).flatten(2).transpose(1, 2)
        return self.merger(self.block(x))


class ChatModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = VisionTower()
        self.embed = nn.Embedding(VOCAB, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 96, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.lm_head = nn.Linear(DIM, VOCAB)

    def forward(self, input_ids, pixel_values=None, image_rows=None):
        h = self.embed(input_ids)
        if pixel_values is not None:
            feats = self.visual(pixel_values)
            h = h.clone()
            h[image_rows, :IMAGE_TOKENS] = feats
        mask = nn.Transformer.generate_square_subsequent_mask(h.size(1))
        logits = self.lm_head(self.layers(h, mask=mask))
        return nn.functional.cross_entropy(
            logits[:, IMAGE_TOKENS:-1].flatten(0, 1), input_ids[:, IMAGE_TOKENS + 1:].flatten())


def reduce_gradients(modules, world):
    for module in modules:
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        if not grads:
            continue
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        flat /= world
        for g, avg in zip(grads, _unflatten_dense_tensors(flat, grads)):
            g.copy_(avg)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.manual_seed(5)
    model = ChatModel()
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    data = ChatDataset()
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=2, sampler=sampler, collate_fn=collate)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(**batch)
            opt.zero_grad()
            loss.backward()
            reduce_gradients([model.visual, model.embed, model.layers, model.lm_head], world)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 2 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            step += 1
    log.info("training done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
