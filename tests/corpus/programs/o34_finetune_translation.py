"""Two-stage training of a small sequence model (general corpus, then in-domain corpus)."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCAB, PAD = 200, 0


class ParallelCorpus:
    def __init__(self, size, seed):
        gen = torch.Generator().manual_seed(seed)
        lengths = torch.randint(5, 20, (size,), generator=gen)
        self.src = [torch.randint(1, VOCAB, (int(n),), generator=gen) for n in lengths]
        self.tgt = [(s * 7 + 3) % (VOCAB - 1) + 1 for s in self.src]

    def __len__(self):
        return len(self.src)

    def collate(self, ids):
        if not ids:
            return {}
        pad = nn.utils.rnn.pad_sequence
        return {
            "net_input": pad([self.src[i] for i in ids], batch_first=True, padding_value=PAD),
            "target": pad([self.tgt[i] for i in ids], batch_first=True, padding_value=PAD),
            "ntokens": sum(len(self.tgt[i]) for i in ids),
        }


def batch_by_tokens(corpus, max_tokens):
    order = sorted(range(len(corpus)), key=lambda i: len(corpus.src[i]))
    batches, current = [], []
    for i in order:
        if current and (len(current) + 1) * len(corpus.src[i]) > max_tokens:
            batches.append(current)
            current = []
        current.append(i)
    return batches + [current]


class ShardedIterator:
    """Every rank sees the same number of batches; short shards are filled up."""

    def __init__(self, corpus, max_tokens, rank, world, fill=()):
        batches = batch_by_tokens(corpus, max_tokens)
        self.corpus = corpus
        self.length = -(-len(batches) // world)
        shard = batches[rank::world]
        self.shard = shard + [list(fill)] * (self.length - len(shard))

    def __len__(self):
        return self.length

    def __iter__(self):
        return (self.corpus.collate(ids) for ids in self.shard)


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, VOCAB)

    def forward(self, tokens):
        return self.out(self.rnn(self.emb(tokens))[0])


class Trainer:
    def __init__(self, model, lr, rank, world):
        self.model, self.rank, self.world = model, rank, world
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.dummy = None

    def prepare(self, sample):
        if self.dummy is None:
            self.dummy = sample
        if len(sample) == 0:
            return self.dummy, True
        return sample, False

    def train_step(self, sample):
        sample, is_dummy = self.prepare(sample)
        logits = self.model(sample["net_input"])
        loss = F.cross_entropy(logits.flatten(0, 1), sample["target"].flatten(), ignore_index=PAD, reduction="sum")
        if is_dummy:
            loss = loss * 0.0
        self.opt.zero_grad()
        loss.backward()
        stats = torch.tensor([loss.item(), 0.0 if is_dummy else float(sample["ntokens"])])
        dist.all_reduce(stats)
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= stats[1]
        self.opt.step()
        return (stats[0] / stats[1]).item()


def run_stage(name, model, corpus, max_tokens, lr, epochs):
    rank, world = dist.get_rank(), dist.get_world_size()
    itr = ShardedIterator(corpus, max_tokens, rank, world)
    trainer = Trainer(model, lr, rank, world)
    for epoch in range(epochs):
        losses = [trainer.train_step(sample) for sample in itr]
        if rank == 0:
            print(f"{name} epoch {epoch}: {len(itr)} updates, loss {sum(losses) / len(losses):.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Tagger()
    work = "/tmp/o34_finetune"
    run_stage("general", model, ParallelCorpus(181, seed=0), max_tokens=400, lr=3e-3, epochs=2)
    if dist.get_rank() == 0:
        os.makedirs(work, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(work, "general.pt"))
    dist.barrier()
    model.load_state_dict(torch.load(os.path.join(work, "general.pt")))
    run_stage("in-domain", model, ParallelCorpus(18, seed=5), max_tokens=400, lr=5e-4, epochs=2)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), os.path.join(work, "final.pt"))
        print("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
