"""Self-play learning of a small board game: actors send trajectories, one learner trains; sweep over learning rates."""
import argparse
import queue

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn

BOARD = 6 * 7
ACTIONS = 7


class Trajectory:
    def __init__(self):
        self.observations = []
        self.policies = []
        self.outcome = 0.0

    def pack(self):
        return (np.stack(self.observations), np.stack(self.policies), np.float32(self.outcome))


def play_game(rng, weights):
    board = np.zeros((3, BOARD), dtype=np.float32)
    traj = Trajectory()
    for move in range(int(rng.integers(20, BOARD))):
        logits = weights @ board.reshape(-1) + rng.normal(0, 0.3, ACTIONS)
        policy = np.exp(logits - logits.max())
        policy /= policy.sum()
        action = int(rng.choice(ACTIONS, p=policy))
        traj.observations.append(board.copy())
        traj.policies.append(policy.astype(np.float32))
        board[move % 2, (action + 7 * (move // 7)) % BOARD] = 1.0
        board[2] = move % 2
    traj.outcome = float(rng.choice([-1.0, 0.0, 1.0]))
    return traj


def actor(num, commands, trajectories, seed):
    rng = np.random.default_rng(seed + num)
    weights = rng.normal(0, 0.05, (ACTIONS, 3 * BOARD))
    games = 0
    while True:
        try:
            if commands.get_nowait() == "":
                break
        except queue.Empty:
            pass
        trajectories.put(play_game(rng, weights).pack())
        games += 1
    print(f"actor-{num} exiting after {games} games", flush=True)


class PolicyValueNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(3 * BOARD, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.policy = nn.Linear(width, ACTIONS)
        self.value = nn.Linear(width, 1)

    def forward(self, x):
        h = self.torso(x.flatten(1))
        return self.policy(h), torch.tanh(self.value(h)).squeeze(1)


def learner(config, trajectories):
    torch.manual_seed(config["seed"])
    model = PolicyValueNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for step in range(config["steps"]):
        obs, pol, val = [], [], []
        while len(obs) < config["games_per_step"]:
            o, p, z = trajectories.get()
            obs.append(torch.from_numpy(o))
            pol.append(torch.from_numpy(p))
            val.append(torch.full((len(o),), float(z)))
        obs, pol, val = torch.cat(obs), torch.cat(pol), torch.cat(val)
        for _ in range(4):
            logits, value = model(obs)
            loss = nn.functional.cross_entropy(logits, pol) + nn.functional.mse_loss(value, val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if (step + 1) % 5 == 0:
            print(f"lr {config['lr']}: step {step + 1} loss {loss.item():.4f}", flush=True)
    print("learner exiting", flush=True)
    return loss.item()


def alpha_zero(config):
    ctx = mp.get_context("spawn")
    trajectories = ctx.Queue()
    channels = [ctx.Queue() for _ in range(config["actors"])]
    actors = [ctx.Process(target=actor, args=(i, channels[i], trajectories, config["seed"]), name=f"actor-{i}")
              for i in range(config["actors"])]
    for proc in actors:
        proc.start()
    try:
        score = learner(config, trajectories)
    finally:
        for channel in channels:
            channel.put("")
        for proc in actors:
            proc.join()
    return score


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--games-per-step", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for lr in (1e-3, 3e-4):
        config = {"lr": lr, "steps": args.steps, "actors": args.actors,
                  "games_per_step": args.games_per_step, "seed": 11}
        results[lr] = alpha_zero(config)
    best = min(results, key=results.get)
    print(f"best learning rate {best} with loss {results[best]:.4f}")


if __name__ == "__main__":
    main()
