"""Evolve small policies for a control task: a pool of processes evaluates and fine-tunes every generation."""
import copy

import torch
import torch.multiprocessing as mp
from torch import nn


class Pendulum:
    """A batch of simple pendulums, integrated with Euler steps."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.theta = (torch.rand(n, generator=g) - 0.5) * 2.0
        self.omega = torch.zeros(n)

    def observe(self):
        return torch.stack([self.theta.sin(), self.theta.cos(), self.omega], dim=1)

    def step(self, torque):
        self.omega = self.omega + 0.05 * (9.8 * self.theta.sin() + torque.clamp(-12, 12))
        self.theta = self.theta + 0.05 * self.omega
        return -(self.theta ** 2 + 0.1 * self.omega ** 2 + 0.001 * torque ** 2)


class Policy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, obs):
        return self.net(obs).squeeze(-1)


def mutate(policy, sigma):
    child = copy.deepcopy(policy)
    with torch.no_grad():
        for p in child.parameters():
            p.add_(sigma * torch.randn_like(p))
    return child


@torch.no_grad()
def rollout(policy, seed, steps=60):
    env = Pendulum(64, seed)
    total = torch.zeros(64)
    for _ in range(steps):
        total += env.step(10.0 * policy(env.observe()))
    return total.mean().item()


def refine(policy, seed, tries=4, sigma=0.02):
    """Hill climbing around one individual."""
    best, score = policy, rollout(policy, seed)
    for _ in range(tries):
        cand = mutate(best, sigma)
        value = rollout(cand, seed)
        if value > score:
            best, score = cand, value
    return best, score


def evaluate_worker(number, tasks, results, seed):
    torch.set_num_threads(1)
    torch.manual_seed(1000 * seed + number)
    while True:
        item = tasks.get()
        if item is None:
            break
        index, state = item
        policy = Policy()
        policy.load_state_dict(state)
        best, score = refine(policy, seed)
        results.put((index, score, best.state_dict()))


class WorkerPool:
    def __init__(self, size):
        self.size = size
        self.ctx = mp.get_context("spawn")

    def run(self, population, seed):
        tasks, results = self.ctx.Queue(), self.ctx.Queue()
        workers = [self.ctx.Process(target=evaluate_worker, args=(n, tasks, results, seed))
                   for n in range(self.size)]
        for w in workers:
            w.start()
        for index, policy in enumerate(population):
            tasks.put((index, policy.state_dict()))
        for _ in workers:
            tasks.put(None)
        for w in workers:
            w.join()
        print(f"generation {seed}: all workers are done", flush=True)
        scores = [None] * len(population)
        for _ in population:
            index, score, state = results.get()
            scores[index] = score
            population[index].load_state_dict(state)
        return scores


class Tournament:
    def __init__(self, size, seed=0):
        torch.manual_seed(seed)
        self.population = [Policy() for _ in range(size)]
        self.pool = WorkerPool(2)

    def select(self, scores):
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        keep = [self.population[i] for i in order[:len(order) // 2]]
        self.population = keep + [mutate(p, 0.1) for p in keep]
        return scores[order[0]]

    def step(self, generation):
        scores = self.pool.run(self.population, generation)
        return self.select(scores)


def main():
    game = Tournament(6)
    serial = [rollout(p, 0) for p in game.population]
    print(f"initial best {max(serial):.2f}", flush=True)
    print(f"after selection {game.select(serial):.2f}", flush=True)
    for generation in range(1, 4):
        best = game.step(generation)
        print(f"generation {generation}: best {best:.2f}", flush=True)
    torch.save(game.population[0].state_dict(), "/tmp/t85_tournament_best.pt")


if __name__ == "__main__":
    main()
