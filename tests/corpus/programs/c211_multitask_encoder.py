"""Multi-task fine-tuning of a shared utterance encoder (intent + passage ranking)."""
import argparse
import logging

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("multitask")


class IntentDataset(Dataset):
    def __init__(self, size, vocab, length, num_intents, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, vocab, (size, length), generator=g)
        self.labels = self.tokens[:, 0] % num_intents

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.labels[i]


class RankingDataset(Dataset):
    def __init__(self, size, vocab, length, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, vocab, (size, length), generator=g)
        self.scores = self.tokens.float().mean(dim=1) / vocab

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.scores[i]


class SharedEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens):
        return self.norm(self.layers(self.embed(tokens))).mean(dim=1)


class MultiTaskModel(nn.Module):
    def __init__(self, vocab, dim, num_intents):
        super().__init__()
        self.encoder = SharedEncoder(vocab, dim)
        self.heads = nn.ModuleDict({
            "intent": nn.Linear(dim, num_intents),
            "ranking": nn.Linear(dim, 1),
            "sentiment": nn.Linear(dim, 3),
        })

    def forward(self, tokens, task):
        return self.heads[task](self.encoder(tokens))


def task_loss(task, output, target):
    if task == "intent":
        return F.cross_entropy(output, target)
    return F.mse_loss(output.squeeze(-1), target)


def make_loader(dataset, batch_size):
    return DataLoader(dataset, batch_size, sampler=DistributedSampler(dataset), drop_last=True)


def train_epoch(model, loaders, optimizer, epoch, rank):
    model.train()
    for loader in loaders.values():
        loader.sampler.set_epoch(epoch)
    for step, batches in enumerate(zip(*loaders.values())):
        losses = []
        for task, (tokens, target) in zip(loaders, batches):
            output = model(tokens, task)
            losses.append(task_loss(task, output, target))
        loss = torch.mean(torch.stack(losses))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--tasks", nargs="+", default=["intent", "ranking"])
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)

    vocab, num_intents = 500, 12
    datasets = {
        "intent": IntentDataset(640, vocab, 24, num_intents, seed=1),
        "ranking": RankingDataset(640, vocab, 24, seed=2),
    }
    loaders = {task: make_loader(datasets[task], args.batch_size) for task in args.tasks}
    model = DDP(MultiTaskModel(vocab, args.dim, num_intents), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    if rank == 0:
        log.info("tasks %s, world size %d", args.tasks, dist.get_world_size())

    for epoch in range(args.epochs):
        train_epoch(model, loaders, optimizer, epoch, rank)
    if rank == 0:
        log.info("training finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
