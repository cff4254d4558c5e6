"""Actors play episodes in processes of their own, the learner trains on what they send."""
import os
import time

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

BOARD = 10
ACTIONS = 5
OUT = "/tmp/m72_actors_out"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * BOARD * BOARD, 128), nn.ReLU())
        self.policy = nn.Linear(128, ACTIONS)
        self.value = nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.policy(h), self.value(h).squeeze(1)


class Game:
    """Walk to the goal on a board with walls."""

    def __init__(self, rng):
        self.rng = rng
        self.walls = rng.random((BOARD, BOARD)) < 0.15
        self.me, self.goal = rng.integers(0, BOARD, 2), rng.integers(0, BOARD, 2)

    def planes(self):
        x = np.zeros((3, BOARD, BOARD), dtype=np.float32)
        x[0] = self.walls
        x[1][tuple(self.me)] = 1
        x[2][tuple(self.goal)] = 1
        return x

    def step(self, action):
        move = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)][action]
        there = np.clip(self.me + move, 0, BOARD - 1)
        if not self.walls[tuple(there)]:
            self.me = there
        return float((self.me == self.goal).all()) - 0.01


def play(model, rng, length=64):
    game, states, actions, rewards = Game(rng), [], [], []
    for _ in range(length):
        state = game.planes()
        with torch.no_grad():
            logits, _ = model(torch.from_numpy(state)[None])
        p = F.softmax(logits[0], dim=0).double().numpy()
        action = int(rng.choice(ACTIONS, p=p / p.sum()))
        states.append(state)
        actions.append(action)
        rewards.append(game.step(action))
    returns = np.cumsum(rewards[::-1])[::-1].astype(np.float32).copy()
    return np.stack(states), np.array(actions), returns


def actor(index, model, episodes, stop):
    torch.set_num_threads(1)
    rng = np.random.default_rng(index)
    played = 0
    while not stop.is_set():
        episodes.put(play(model, rng))
        played += 1
    print(f"actor {index} played {played} episodes", flush=True)


class Learner:
    def __init__(self, model, episodes, batch=4):
        self.model, self.episodes, self.batch = model, episodes, batch
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    def gather(self):
        parts = [self.episodes.get() for _ in range(self.batch)]
        return [torch.from_numpy(np.concatenate(p)) for p in zip(*parts)]

    def update(self, passes=15):
        states, actions, returns = self.gather()
        for _ in range(passes):
            logits, values = self.model(states)
            gain = (returns - values).detach()
            policy = (F.cross_entropy(logits, actions, reduction="none") * gain).mean()
            loss = policy + F.mse_loss(values, returns)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item(), returns.mean().item()


def main():
    torch.manual_seed(0)
    os.makedirs(OUT, exist_ok=True)
    ctx = mp.get_context("spawn")
    model = Net().share_memory()
    episodes, stop = ctx.Queue(maxsize=16), ctx.Event()
    actors = [ctx.Process(target=actor, args=(i, model, episodes, stop)) for i in range(2)]
    for p in actors:
        p.start()
    learner = Learner(model, episodes)
    for step in range(6):
        loss, mean = learner.update()
        if step % 2 == 1:
            print(f"step {step + 1}: loss {loss:.3f}", flush=True)
    stop.set()
    torch.save(model.state_dict(), os.path.join(OUT, "final.pt"))
    print("training finished, model saved", flush=True)
    started = time.time()
    for p in actors:
        p.join()
        p.terminate()
    print(f"all actors left after {time.time() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
