"""Behaviour cloning for the cart task, with a live scorer that rates fresh rollouts
in the background while the policy is being trained."""
import argparse
import copy
import json
import threading
import time
from collections import deque

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


class CartRollouts:
    """Expert rollouts of the cart: a strip of 1 x 32 x 32 depth views and the push that was given."""

    def __init__(self, episodes, seed):
        rng = np.random.default_rng(seed)
        self.views, self.pushes = [], []
        for _ in range(episodes):
            position, speed = rng.uniform(-1, 1), 0.0
            for _ in range(16):
                push = -0.8 * position - 0.3 * speed
                speed += 0.1 * push
                position += 0.1 * speed
                view = np.exp(-((np.linspace(-1, 1, 32) - position) ** 2) / 0.05)
                self.views.append(np.tile(view, (32, 1)) + 0.05 * rng.standard_normal((32, 32)))
                self.pushes.append([push])
        self.views = torch.tensor(np.stack(self.views), dtype=torch.float32)[:, None]
        self.pushes = torch.tensor(self.pushes, dtype=torch.float32)

    def batches(self, size):
        order = torch.randperm(len(self.views))
        for start in range(0, len(order) - size + 1, size):
            rows = order[start:start + size]
            yield self.views[rows], self.pushes[rows]


class Policy(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 5, padding=2)
        self.conv2 = nn.Conv2d(width, width, 5, padding=2, stride=2)
        self.head = nn.Linear(width * 4 * 4, 1)

    def forward(self, views):
        x = F.relu(self.conv1(views))
        x = F.relu(self.conv2(x))
        x = F.adaptive_avg_pool2d(x, 4)
        return torch.tanh(self.head(x.flatten(1)))


class LiveScorer:
    """Keeps rating the most recent policy on held-out rollouts, as fast as it can."""

    def __init__(self, rollouts, batch_size=32):
        self.rollouts = rollouts
        self.batch_size = batch_size
        self.policy = None
        self.lock = threading.Lock()
        self.history = deque(maxlen=500)
        self.thread = threading.Thread(target=self.run, name="live-scorer", daemon=True)

    def start(self, policy):
        self.publish(policy)
        self.thread.start()

    def publish(self, policy):
        snapshot = copy.deepcopy(policy).eval()
        with self.lock:
            self.policy = snapshot

    @torch.no_grad()
    def run(self):
        while True:
            for views, pushes in self.rollouts.batches(self.batch_size):
                with self.lock:
                    policy = self.policy
                predicted = policy(views)
                self.history.append(F.mse_loss(predicted, pushes).item())

    def latest(self):
        return float(np.mean(list(self.history)[-8:])) if self.history else float("nan")


def train(args):
    rollouts = CartRollouts(args.episodes, seed=args.seed)
    held_out = CartRollouts(args.episodes // 4, seed=args.seed + 1)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    scorer = LiveScorer(held_out)
    scorer.start(policy)
    for epoch in range(args.epochs):
        total, count = 0.0, 0
        for views, pushes in rollouts.batches(args.batch_size):
            optimizer.zero_grad()
            loss = F.mse_loss(policy(views), pushes)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        scorer.publish(policy)
        time.sleep(0.2)
        print(f"epoch {epoch} train {total / count:.5f} live score {scorer.latest():.5f}", flush=True)
    torch.save(policy.state_dict(), "cart_policy.pt")
    with open("cart_policy.json", "w") as handle:
        json.dump({"epochs": args.epochs, "score": scorer.latest()}, handle)
    print("saved cart_policy.pt", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    train(args)
