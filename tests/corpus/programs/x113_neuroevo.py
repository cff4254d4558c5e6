"""Neuro-evolution of a small controller: each candidate is tuned and scored in its own process."""
import argparse
import copy

import torch
import torch.multiprocessing as mp
import torch.nn as nn


class Controller(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)

    def genome(self):
        return nn.utils.parameters_to_vector(self.parameters()).detach().clone()

    def load_genome(self, vec):
        nn.utils.vector_to_parameters(vec.clone(), self.parameters())


def pendulum_batch(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    angle = 3.0 * (torch.rand(n, 1, generator=g) - 0.5)
    speed = torch.randn(n, 1, generator=g)
    x = torch.cat([angle.cos(), angle.sin(), speed], 1)
    y = -2.0 * angle.sin() - 0.5 * speed
    return x, y


def tune(model, seed, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = pendulum_batch(seed)
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
    return -loss.item()


def evaluate(slot, model, seed, steps, results):
    fitness = tune(model, seed, steps)
    results.put((slot, fitness, model.genome()))


class WorkerPool:
    def __init__(self, size, steps):
        self.size = size
        self.steps = steps
        self.results = mp.Queue()

    def run(self, population, seed):
        for begin in range(0, len(population), self.size):
            procs = []
            for slot in range(begin, min(begin + self.size, len(population))):
                p = mp.Process(target=evaluate,
                               args=(slot, population[slot], seed + slot, self.steps, self.results))
                p.start()
                procs.append(p)
            for p in procs:
                p.join()
        print(f"all {len(population)} candidates evaluated", flush=True)

        scored = []
        for _ in population:
            slot, fitness, genome = self.results.get()
            scored.append((fitness, slot, genome))
        return sorted(scored, key=lambda s: (-s[0], s[1]))


def next_generation(scored, template, size, sigma):
    elite = [genome for _, _, genome in scored[: max(2, size // 3)]]
    children = []
    for i in range(size):
        child = copy.deepcopy(template)
        parent = elite[i % len(elite)]
        child.load_genome(parent + sigma * torch.randn_like(parent))
        children.append(child)
    return children


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--population", type=int, default=6)
    ap.add_argument("--generations", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--steps", type=int, default=40)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(21)
    population = [Controller() for _ in range(args.population)]
    base = tune(copy.deepcopy(population[0]), 0, args.steps)
    print(f"baseline fitness {base:.4f}", flush=True)

    pool = WorkerPool(args.workers, args.steps)
    for gen in range(args.generations):
        scored = pool.run(population, seed=100 * gen)
        print(f"generation {gen} best fitness {scored[0][0]:.4f}", flush=True)
        population = next_generation(scored, population[0], args.population, 0.02)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
