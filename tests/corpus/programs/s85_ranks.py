"""Train a translation embedding of a small knowledge graph, then rank the test triples in worker processes."""
import multiprocessing as mp

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ENTITIES, RELATIONS, DIM = 600, 24, 32


class KnowledgeGraph:
    def __init__(self, seed=4):
        rng = np.random.default_rng(seed)
        group = rng.integers(0, 12, ENTITIES)
        shift = rng.integers(0, 12, RELATIONS)
        rel = rng.zipf(1.35, 9000)
        rel = rel[rel <= RELATIONS] - 1
        heads = rng.integers(0, ENTITIES, len(rel))
        members = [np.flatnonzero(group == g) for g in range(12)]
        tails = np.array([rng.choice(members[(group[h] + shift[r]) % 12]) for h, r in zip(heads, rel)])
        triples = np.stack([heads, rel, tails], 1)
        rare = rel >= RELATIONS - 1
        self.test = np.concatenate([triples[~rare][:600], triples[rare]])
        self.train = triples[~rare][600:]
        self.known = {tuple(t) for t in triples.tolist()}
        self.trained_relations = set(self.train[:, 1].tolist())


class TransE(nn.Module):
    def __init__(self):
        super().__init__()
        self.ent = nn.Embedding(ENTITIES, DIM)
        self.rel = nn.Embedding(RELATIONS, DIM)
        nn.init.uniform_(self.ent.weight, -0.2, 0.2)
        nn.init.uniform_(self.rel.weight, -0.2, 0.2)

    def forward(self, t):
        return (self.ent(t[:, 0]) + self.rel(t[:, 1]) - self.ent(t[:, 2])).abs().sum(1)


def train(graph, epochs=8, batch=256):
    torch.manual_seed(0)
    model = TransE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.from_numpy(graph.train)
    for epoch in range(epochs):
        total = 0.0
        for idx in torch.randperm(len(data)).split(batch):
            pos = data[idx]
            neg = pos.clone()
            neg[:, 2] = torch.randint(0, ENTITIES, (len(pos),))
            loss = F.relu(1.0 + model(pos) - model(neg)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(pos)
        print(f"epoch {epoch} loss {total / len(data):.4f}", flush=True)
    return model


class RankCalculator(mp.Process):
    """Takes groups of triples with one relation, gives the rank of each true tail among all entities."""

    def __init__(self, name, todo, done, ent, rel, known, relations):
        super().__init__(name=name, daemon=True)
        self.todo, self.done = todo, done
        self.ent, self.rel = ent, rel
        self.known, self.relations = known, relations

    def rank(self, head, relation, tail):
        distance = np.abs(self.ent[head] + self.rel[relation] - self.ent).sum(1)
        order = np.argsort(distance)
        raw = int(np.flatnonzero(order == tail)[0])
        better = sum((head, relation, int(e)) in self.known for e in order[:raw])
        return raw, raw - better

    def run(self):
        while True:
            relation, pairs = self.todo.get()
            if relation not in self.relations:
                continue
            ranks = [self.rank(h, relation, t) for h, t in pairs]
            self.done.put((relation, ranks))
            self.todo.task_done()


def group_by_relation(triples, size=40):
    for relation in np.unique(triples[:, 1]):
        pairs = triples[triples[:, 1] == relation][:, [0, 2]].tolist()
        for i in range(0, len(pairs), size):
            yield int(relation), pairs[i:i + size]


def evaluate(model, graph, workers=2):
    todo, done = mp.JoinableQueue(), mp.Queue()
    ent = model.ent.weight.detach().numpy().copy()
    rel = model.rel.weight.detach().numpy().copy()
    pool = [RankCalculator(f"ranks-{i}", todo, done, ent, rel, graph.known, graph.trained_relations)
            for i in range(workers)]
    for p in pool:
        p.start()
    groups = list(group_by_relation(graph.test))
    for g in groups:
        todo.put(g)
    print(f"{len(groups)} groups handed to {workers} rank calculators", flush=True)
    todo.join()
    print("all ranks calculated", flush=True)
    ranks = []
    for _ in range(sum(r in graph.trained_relations for r, _ in groups)):
        ranks += done.get()[1]
    raw, filtered = np.array(ranks).T
    print(f"mean rank raw {raw.mean():.1f} filtered {filtered.mean():.1f} hits@10 {(filtered < 10).mean():.3f}")


def main():
    graph = KnowledgeGraph()
    print(f"{len(graph.train)} train and {len(graph.test)} test triples", flush=True)
    evaluate(train(graph), graph)


if __name__ == "__main__":
    main()
