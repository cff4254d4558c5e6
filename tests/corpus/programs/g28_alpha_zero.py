import multiprocessing as mp
import queue as queue_lib
import time

import numpy as np
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, cells=42, actions=7):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(cells, 64), nn.ReLU())
        self.policy, self.value = nn.Linear(64, actions), nn.Linear(64, 1)

    def forward(self, obs):
        h = self.torso(obs)
        return self.policy(h), torch.tanh(self.value(h)).squeeze(-1)


def play_game(rng, n_moves=30):
    obs = rng.integers(-1, 2, size=(n_moves, 42)).astype(np.float32)
    policy = rng.dirichlet(np.ones(7), size=n_moves).astype(np.float32)
    return {"obs": obs, "policy": policy, "value": float(rng.choice([-1, 1]))}


def actor(num, traj_queue, ctrl_queue):
    """Plays games against itself until the learner sends the empty path."""
    rng = np.random.default_rng(num)
    games = 0
    while True:
        try:
            if ctrl_queue.get_nowait() == "":
                break
        except queue_lib.Empty:
            pass
        traj_queue.put(play_game(rng))
        games += 1
        time.sleep(0.005)
    print(f"actor-{num} exiting after {games} games", flush=True)


def learner(traj_queue, broadcast, max_steps, batch_games=16):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(1, max_steps + 1):
        games = [traj_queue.get() for _ in range(batch_games)]
        obs = torch.from_numpy(np.concatenate([g["obs"] for g in games]))
        target_pi = torch.from_numpy(np.concatenate([g["policy"] for g in games]))
        target_v = torch.tensor([g["value"] for g in games]).repeat_interleave(30)
        for _ in range(20):
            logits, value = net(obs)
            loss = -(target_pi * logits.log_softmax(-1)).sum(-1).mean() + (value - target_v).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        path = f"/tmp/az_checkpoint_{step % 3}.pt"
        torch.save(net.state_dict(), path)
        broadcast(path)
        print(f"learner step {step} loss {loss.item():.3f}", flush=True)
    print("learner exiting", flush=True)


def alpha_zero(n_actors=2, max_steps=10):
    traj_queue = mp.Queue()
    ctrl_queues = [mp.Queue() for _ in range(n_actors)]
    actors = [mp.Process(target=actor, args=(i, traj_queue, ctrl_queues[i])) for i in range(n_actors)]
    for proc in actors:
        proc.start()

    def broadcast(msg):
        for q in ctrl_queues:
            q.put(msg)

    try:
        learner(traj_queue, broadcast, max_steps)
    except (KeyboardInterrupt, EOFError):
        print("Caught a KeyboardInterrupt, stopping early.")
    finally:
        broadcast("")
        for proc in actors:
            proc.join()
            print("Joined", flush=True)


if __name__ == "__main__":
    for lr_run in range(2):
        alpha_zero()
        print(f"sweep run {lr_run} done", flush=True)
