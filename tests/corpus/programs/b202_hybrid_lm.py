import datetime
import logging
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("hybrid_lm")

VOCAB = 512
MASK_ID = 4
SEQ_LEN = 64
BATCH = 8
EPOCHS = 3
HYBRID_NUMERATOR = 1


def read_corpus(seed=3, documents=160):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(40, 420, (documents,), generator=g).tolist()
    return [torch.randint(5, VOCAB, (n,), generator=g) for n in lengths]


class MaskedDataset(Dataset):
    def __init__(self, docs, rank, world):
        docs = docs[rank::world]
        self.segments = [d[:SEQ_LEN] for d in docs if len(d) >= SEQ_LEN]

    def __len__(self):
        return len(self.segments)

    def __getitem__(self, i):
        target = self.segments[i].clone()
        source = target.clone()
        chosen = torch.rand(SEQ_LEN) < 0.15
        source[chosen] = MASK_ID
        target[~chosen] = -100
        return source, target


class CausalDataset(Dataset):
    def __init__(self, docs, rank, world):
        docs = docs[rank::world]
        self.segments = []
        for d in docs:
            for start in range(0, len(d) - SEQ_LEN, SEQ_LEN):
                self.segments.append(d[start:start + SEQ_LEN + 1])

    def __len__(self):
        return len(self.segments)

    def __getitem__(self, i):
        seg = self.segments[i]
        return seg[:-1], seg[1:]


class TinyEncoder(nn.Module):
    def __init__(self, dim=96, layers=2, heads=4):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.zeros(1, SEQ_LEN, dim))
        block = nn.TransformerEncoderLayer(dim, heads, dim * 2, batch_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids, causal):
        mask = nn.Transformer.generate_square_subsequent_mask(SEQ_LEN) if causal else None
        return self.head(self.blocks(self.embed(ids) + self.pos, mask=mask))


def build_loader(docs, rank, world, epoch):
    kind = MaskedDataset if rank < HYBRID_NUMERATOR * world // 2 else CausalDataset
    dataset = kind(docs, rank, world)
    g = torch.Generator().manual_seed(1000 * epoch + rank)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, generator=g)
    log.info("rank %d epoch %d %s steps %d", rank, epoch, kind.__name__, len(loader))
    return loader, kind is CausalDataset


def train_epoch(model, opt, loader, causal, rank, epoch):
    model.train()
    total = 0.0
    for step, (source, target) in enumerate(loader):
        logits = model(source, causal)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        total += loss.item()
        if step % 5 == 0:
            log.info("rank %d epoch %d step %d loss %.3f", rank, epoch, step, loss.item())
    return total / max(1, len(loader))


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(42)
    docs = read_corpus()
    model = DDP(TinyEncoder())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(EPOCHS):
        loader, causal = build_loader(docs, rank, world, epoch)
        mean = train_epoch(model, opt, loader, causal, rank, epoch)
        dist.barrier()
        if rank == 0:
            log.info("epoch %d train perplexity %.2f", epoch, math.exp(min(mean, 20)))
            if os.environ.get("LM_OUT"):
                torch.save(model.module.state_dict(), os.path.join(os.environ["LM_OUT"], "model.bin"))
        dist.barrier()

    if rank == 0:
        log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
