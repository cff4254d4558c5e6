import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterDataPipe

NUM_FEAT = 40
NUM_LABELS = 24


class OggCorpus(object):
    def __init__(self, name, num_seqs, seed, rank=0, size=1, partition_epoch=1):
        self.name = name
        self.num_seqs = num_seqs
        self.seed = seed
        self.rank = rank
        self.size = size
        self.partition_epoch = partition_epoch
        self.epoch = 1
        self.codebook = np.random.default_rng(5).normal(size=(NUM_LABELS, NUM_FEAT)).astype(np.float32)

    def init_seq_order(self, epoch):
        self.epoch = epoch

    def iterate(self):
        order = np.random.default_rng(self.seed + (self.epoch - 1) // self.partition_epoch).permutation(self.num_seqs)
        part = (self.epoch - 1) % self.partition_epoch
        order = order[part::self.partition_epoch]
        order = order[: len(order) // self.size * self.size]
        for seq in order[self.rank::self.size]:
            rng = np.random.default_rng(self.seed * 100003 + int(seq))
            labels = rng.integers(0, NUM_LABELS, size=rng.integers(20, 60))
            feats = self.codebook[labels] + rng.normal(0, 0.7, size=(len(labels), NUM_FEAT)).astype(np.float32)
            yield {"data": feats.astype(np.float32), "classes": labels}


class DatasetPipe(IterDataPipe):
    def __init__(self, corpus):
        self.corpus = corpus

    def __iter__(self):
        yield from self.corpus.iterate()


class BatchingPipe(IterDataPipe):
    def __init__(self, pipe, max_seqs):
        self.pipe = pipe
        self.max_seqs = max_seqs

    def __iter__(self):
        seqs = []
        for seq in self.pipe:
            seqs.append(seq)
            if len(seqs) == self.max_seqs:
                yield seqs
                seqs = []
        if seqs:
            yield seqs


def collate_batch(seqs):
    feats = nn.utils.rnn.pad_sequence([torch.from_numpy(s["data"]) for s in seqs], batch_first=True)
    labels = nn.utils.rnn.pad_sequence(
        [torch.from_numpy(s["classes"]) for s in seqs], batch_first=True, padding_value=-100)
    return feats, labels


class AcousticModel(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.lstm = nn.LSTM(NUM_FEAT, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(dim * 2, NUM_LABELS)

    def forward(self, feats):
        return self.out(self.lstm(feats)[0])


class Engine(object):
    def __init__(self, num_epochs, max_seqs):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.num_epochs = num_epochs
        self.max_seqs = max_seqs
        self.train_dataset = OggCorpus("train", 480, 11, self.rank, self.size, partition_epoch=4)
        self.eval_datasets = {"dev": OggCorpus("dev", 40, 21), "devtrain": OggCorpus("devtrain", 40, 31)}
        self.model = AcousticModel()
        self.ddp = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.Adam(self.ddp.parameters(), lr=2e-3)
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100)
        self.loaders = {}
        self.epoch = 0

    def get_loader(self, corpus):
        corpus.init_seq_order(self.epoch)
        if corpus.name not in self.loaders:
            pipe = BatchingPipe(DatasetPipe(corpus), self.max_seqs)
            self.loaders[corpus.name] = DataLoader(pipe, batch_size=None, collate_fn=collate_batch)
        return self.loaders[corpus.name]

    def train(self):
        for self.epoch in range(1, self.num_epochs + 1):
            self.train_epoch()
            if self.rank == 0:
                self.eval_model()

    def train_epoch(self):
        self.ddp.train()
        start = time.time()
        for step, (feats, labels) in enumerate(self.get_loader(self.train_dataset)):
            loss = self.criterion(self.ddp(feats).transpose(1, 2), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 5 == 0:
                print(f"ep {self.epoch} train, rank {self.rank}, step {step}, ce {loss.item():.3f}, "
                      f"{(time.time() - start) / (step + 1):.3f} sec/step", flush=True)

    def eval_model(self):
        self.model.eval()
        for name, corpus in self.eval_datasets.items():
            total, count = 0.0, 0
            with torch.no_grad():
                for feats, labels in self.get_loader(corpus):
                    total += self.criterion(self.model(feats).transpose(1, 2), labels).item()
                    count += 1
            print(f"ep {self.epoch} {name}: ce {total / count:.4f}", flush=True)


def main():
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    engine = Engine(num_epochs=4, max_seqs=6)
    print(f"rank {engine.rank}/{engine.size} pid {os.getpid()} start training", flush=True)
    engine.train()
    dist.destroy_process_group()
    print("finished training", flush=True)


if __name__ == "__main__":
    main()
