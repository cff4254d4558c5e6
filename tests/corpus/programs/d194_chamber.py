import argparse
import logging
import multiprocessing as mp

import numpy as np
import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("nett")


class Chamber:
    def __init__(self, mode, seed):
        self.rng = np.random.default_rng(seed)
        self.mode = mode
        self.steps = 0
        self.position = np.zeros(2, dtype=np.float32)
        self.target = np.zeros(2, dtype=np.float32)

    def observe(self):
        return np.concatenate([self.position, self.target]).astype(np.float32)

    def reset(self):
        self.steps = 0
        self.position = self.rng.uniform(-1, 1, 2).astype(np.float32)
        self.target = self.rng.choice([-0.8, 0.8], 2).astype(np.float32)
        return self.observe()

    def step(self, action):
        move = np.array([(0.1, 0), (-0.1, 0), (0, 0.1), (0, -0.1)][action], dtype=np.float32)
        self.position = np.clip(self.position + move, -1, 1)
        self.steps += 1
        distance = float(np.abs(self.position - self.target).sum())
        return self.observe(), -distance, distance < 0.2 or self.steps >= 20


def run_chamber(remote, parent_remote, mode, seed):
    parent_remote.close()
    chamber = Chamber(mode, seed)
    while True:
        try:
            command, data = remote.recv()
        except EOFError:
            break
        if command == "reset":
            remote.send(chamber.reset())
        elif command == "step":
            remote.send(chamber.step(data))
        elif command == "close":
            remote.close()
            break


class RemoteChamber:
    def __init__(self, mode, seed):
        self.remote, child = mp.Pipe()
        self.process = mp.Process(target=run_chamber, args=(child, self.remote, mode, seed),
                                  name=f"chamber-{mode}-{seed}")
        self.process.start()
        child.close()

    def reset(self):
        self.remote.send(("reset", None))
        return self.remote.recv()

    def step(self, action):
        self.remote.send(("step", action))
        return self.remote.recv()

    def close(self):
        self.remote.send(("close", None))
        self.process.join()


CHAMBERS = {}


def get_chamber(mode, seed):
    if (mode, seed) not in CHAMBERS:
        CHAMBERS[mode, seed] = RemoteChamber(mode, seed)
    return CHAMBERS[mode, seed]


class Brain(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 4))

    def forward(self, x):
        return torch.distributions.Categorical(logits=self.net(x))


def rollout(brain, env, greedy=False):
    state, done = env.reset(), False
    log_probs, rewards = [], []
    while not done:
        dist = brain(torch.from_numpy(state))
        action = dist.probs.argmax() if greedy else dist.sample()
        log_probs.append(dist.log_prob(action))
        state, reward, done = env.step(int(action))
        rewards.append(reward)
    return torch.stack(log_probs), rewards


def train(brain, env, episodes):
    optimizer = torch.optim.Adam(brain.parameters(), lr=3e-3)
    baseline = 0.0
    for episode in range(episodes):
        log_probs, rewards = rollout(brain, env)
        returns = torch.tensor(np.cumsum(rewards[::-1])[::-1].copy(), dtype=torch.float32)
        baseline = 0.95 * baseline + 0.05 * float(returns.mean())
        loss = -(log_probs * (returns - baseline)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if episode % 10 == 0:
            log.info("episode %d return %.2f", episode, float(returns[0]))


def evaluate(brain, env, episodes):
    with torch.no_grad():
        totals = [sum(rollout(brain, env, greedy=True)[1]) for _ in range(episodes)]
    return float(np.mean(totals))


def execute_job(brain_id, mode, args):
    torch.manual_seed(brain_id)
    brain = Brain()
    train_env = get_chamber("train", brain_id)
    train(brain, train_env, args.train_eps)
    test_env = get_chamber("test", 100 + brain_id)
    score = evaluate(brain, test_env, args.test_eps)
    log.info("brain %d (%s): test return %.2f", brain_id, mode, score)
    return score


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-brains", type=int, default=2)
    parser.add_argument("--train-eps", type=int, default=30)
    parser.add_argument("--test-eps", type=int, default=5)
    parser.add_argument("--mode", default="full")
    args = parser.parse_args()
    torch.set_num_threads(1)
    scores = [execute_job(brain_id, args.mode, args) for brain_id in range(args.num_brains)]
    log.info("all %d jobs done, mean test return %.2f", len(scores), float(np.mean(scores)))


if __name__ == "__main__":
    main()
