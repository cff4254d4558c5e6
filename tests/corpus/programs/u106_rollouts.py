"""Evolution strategy on a cart balancing task: each generation is scored in parallel processes."""
import argparse
import math

import torch
import torch.multiprocessing as mp
from torch import nn


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1), nn.Tanh())

    def forward(self, state):
        return self.net(state)


class CartPole:
    def __init__(self, generator):
        self.state = (torch.rand(4, generator=generator) - 0.5) * 0.1

    def step(self, force):
        x, v, angle, omega = self.state.tolist()
        temp = (10.0 * force + 0.05 * omega * omega * math.sin(angle)) / 1.1
        alpha = (9.8 * math.sin(angle) - math.cos(angle) * temp) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        accel = temp - 0.05 * alpha * math.cos(angle) / 1.1
        self.state = torch.tensor([x + 0.02 * v, v + 0.02 * accel, angle + 0.02 * omega, omega + 0.02 * alpha])
        return abs(x) < 2.4 and abs(angle) < 0.21


def rollout(policy, steps, generator):
    env = CartPole(generator)
    trace = torch.zeros(steps, 4)
    for t in range(steps):
        trace[t] = env.state
        if not env.step(policy(env.state).item()):
            return t + 1, trace
    return steps, trace


def flat_parameters(policy):
    return torch.cat([p.detach().reshape(-1) for p in policy.parameters()])


def load_flat(policy, flat):
    offset = 0
    for p in policy.parameters():
        p.data.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def score_members(args, center, seeds, record, results):
    torch.set_num_threads(1)
    policy = Policy(args.hidden)
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(center.numel(), generator=generator)
        with torch.no_grad():
            load_flat(policy, center + args.sigma * noise)
            reward, trace = rollout(policy, args.max_steps, generator)
        results.put((seed, reward, trace[:reward].clone() if record else None))


def evaluate_generation(args, center, generation, record):
    results = mp.Queue()
    seeds = [generation * 1000 + i for i in range(args.population)]
    workers = []
    for rank in range(args.workers):
        share = seeds[rank::args.workers]
        worker = mp.Process(target=score_members, args=(args, center, share, record, results))
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join()
    items = [results.get() for _ in range(args.population)]
    scores = sorted((seed, reward) for seed, reward, _ in items)
    traces = {seed: trace for seed, _, trace in items}
    return scores, traces


def update(args, center, scores):
    rewards = torch.tensor([float(r) for _, r in scores])
    weights = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    gradient = torch.zeros_like(center)
    for (seed, _), weight in zip(scores, weights):
        generator = torch.Generator().manual_seed(seed)
        gradient += weight * torch.randn(center.numel(), generator=generator)
    return center + args.lr / (len(scores) * args.sigma) * gradient


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--population", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--max-steps", type=int, default=200)
    parser.add_argument("--sigma", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(0)
    center = flat_parameters(Policy(args.hidden))
    for generation in range(args.generations):
        record = generation == args.generations - 1
        scores, traces = evaluate_generation(args, center, generation, record)
        center = update(args, center, scores)
        mean = sum(r for _, r in scores) / len(scores)
        print(f"generation {generation} mean reward {mean:.1f} best {max(r for _, r in scores)}", flush=True)
    best_seed = max(scores, key=lambda item: item[1])[0]
    trace = traces[best_seed]
    print(f"best member: largest angle {trace[:, 2].abs().max():.3f} over {len(trace)} steps", flush=True)


if __name__ == "__main__":
    main()
