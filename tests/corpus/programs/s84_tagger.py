"""Train a sequence tagger with averaged gradients on all ranks, keep the best epoch, stop when patience is used up."""
import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

OUT = "/tmp/s84_tagger_model"
TAGS, VOCAB, PAD = 6, 60, 0


def make_corpus(n, seed):
    rng = random.Random(seed)
    corpus = []
    for _ in range(n):
        length = rng.randint(6, 20)
        words = [rng.randint(1, VOCAB - 1) for _ in range(length)]
        tags = [(w + prev) % TAGS if rng.random() < 0.9 else rng.randrange(TAGS)
                for w, prev in zip(words, [0] + words[:-1])]
        corpus.append((words, tags))
    return corpus


def batches(corpus, size):
    for i in range(0, len(corpus) - size + 1, size):
        chunk = corpus[i:i + size]
        width = max(len(w) for w, _ in chunk)
        words = torch.zeros(size, width, dtype=torch.long)
        tags = torch.full((size, width), -100)
        for r, (w, t) in enumerate(chunk):
            words[r, :len(w)] = torch.tensor(w)
            tags[r, :len(t)] = torch.tensor(t)
        yield words, tags


class Tagger(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, TAGS)

    def forward(self, words):
        return self.out(self.rnn(self.emb(words))[0])


class TrainingState:
    def __init__(self, model, rank, world):
        self.model, self.rank, self.world = model, rank, world
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        self.epoch = 0
        self.best = None
        self.since_best = 0

    @property
    def is_main(self):
        return self.rank == 0


class Trainer:
    def __init__(self, epochs=7, patience=3, batch=16):
        self.epochs, self.patience, self.batch = epochs, patience, batch

    def average_gradients(self, state):
        flat = torch.cat([p.grad.flatten() for p in state.model.parameters()])
        dist.all_reduce(flat)
        flat /= state.world
        for p, g in zip(state.model.parameters(), flat.split([p.numel() for p in state.model.parameters()])):
            p.grad.copy_(g.view_as(p))

    def train_epoch(self, state, corpus):
        state.model.train()
        total = 0.0
        for n, (words, tags) in enumerate(batches(corpus, self.batch), 1):
            loss = F.cross_entropy(state.model(words).flatten(0, 1), tags.flatten())
            state.opt.zero_grad()
            loss.backward()
            self.average_gradients(state)
            state.opt.step()
            total += loss.item()
        return total / n

    @torch.no_grad()
    def evaluate(self, state, corpus):
        state.model.eval()
        hits = torch.zeros(2)
        for words, tags in batches(corpus, self.batch):
            guess = state.model(words).argmax(-1)
            mask = tags >= 0
            hits += torch.tensor([(guess[mask] == tags[mask]).sum(), mask.sum()])
        dist.all_reduce(hits)
        return (hits[0] / hits[1]).item()

    def keep_best(self, state, score):
        if state.is_main and (state.best is None or score > state.best):
            os.makedirs(OUT, exist_ok=True)
            torch.save(state.model.state_dict(), os.path.join(OUT, "best.pt"))
            state.best = score
            state.since_best = 0
        else:
            state.since_best += 1

    def should_go_on(self, state):
        return state.epoch < self.epochs and state.since_best < self.patience

    def fit(self, state, train, dev):
        while self.should_go_on(state):
            loss = self.train_epoch(state, train)
            score = self.evaluate(state, dev)
            self.keep_best(state, score)
            if state.is_main:
                print(f"epoch {state.epoch} loss {loss:.4f} accuracy {score:.4f}", flush=True)
            state.epoch += 1


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    state = TrainingState(Tagger(), rank, world)
    corpus = make_corpus(800, seed=21)
    dev = make_corpus(128, seed=22)
    Trainer().fit(state, corpus[rank::world], dev[rank::world])
    if state.is_main:
        state.model.load_state_dict(torch.load(os.path.join(OUT, "best.pt")))
        print(f"best accuracy {state.best:.4f} after {state.epoch} epochs", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
