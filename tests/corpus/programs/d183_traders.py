import argparse
import logging
import multiprocessing as mp

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("traders")

COLUMNS = ("time", "open", "high", "low", "close", "volume", "zlsma", "buy_signal", "sell_signal")


def price_history(n, seed):
    rng = np.random.default_rng(seed)
    close = 1000 + np.cumsum(rng.normal(0, 1.5, n))
    spread = np.abs(rng.normal(0, 1.0, n))
    zlsma = np.convolve(close, np.ones(16) / 16, mode="same")
    frame = np.stack([np.arange(n) / n, np.roll(close, 1), close + spread, close - spread, close, rng.random(n), zlsma,
                      (close > zlsma) * 1.0, (close < zlsma) * 1.0], 1)
    return frame.astype(np.float32)


class TradingEnv:
    n_actions = 3

    def __init__(self, frame, length=200):
        self.frame, self.length = frame, length
        self.rng = np.random.default_rng()

    def _next_observation(self):
        row = self.frame[self.current_step].copy()
        row[1:5] /= 1000
        row[6] /= 1000
        return np.append(row, np.float32(self.position))

    def reset(self, seed=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.current_step = int(self.rng.integers(0, len(self.frame) - self.length - 1))
        self.end = self.current_step + self.length
        self.position = 0
        return self._next_observation()

    def step(self, action):
        self.position = int(action) - 1
        before = self.frame[self.current_step, 4]
        self.current_step += 1
        reward = self.position * float(self.frame[self.current_step, 4] - before)
        return self._next_observation(), reward, False, self.current_step >= self.end, {"position": self.position}


def env_worker(parent, pipe, env_fn):
    parent.close()
    env = env_fn()
    while True:
        command, data = pipe.recv()
        if command == "reset":
            obs, info = env.reset(seed=data)
            pipe.send((obs, info))
        elif command == "step":
            obs, reward, terminated, truncated, info = env.step(data)
            if terminated or truncated:
                obs, info = env.reset()
            pipe.send((obs, reward, terminated or truncated, info))
        elif command == "close":
            pipe.close()
            return


class SubprocVectorEnv:
    def __init__(self, env_fns):
        self.pipes, self.processes = [], []
        for env_fn in env_fns:
            parent, child = mp.Pipe()
            process = mp.Process(target=env_worker, args=(parent, child, env_fn), daemon=True)
            process.start()
            child.close()
            self.pipes.append(parent)
            self.processes.append(process)

    def reset(self, seed):
        for i, pipe in enumerate(self.pipes):
            pipe.send(("reset", seed + i))
        obs, infos = zip(*[pipe.recv() for pipe in self.pipes])
        return np.stack(obs), infos

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions):
            pipe.send(("step", int(action)))
        obs, rewards, dones, infos = zip(*[pipe.recv() for pipe in self.pipes])
        return np.stack(obs), np.asarray(rewards, np.float32), np.asarray(dones), infos

    def close(self):
        for pipe, process in zip(self.pipes, self.processes):
            pipe.send(("close", None))
            process.join()


class Collector:
    def __init__(self, net, envs, seed):
        self.net, self.envs = net, envs
        self.obs, _ = envs.reset(seed)

    @torch.no_grad()
    def collect(self, n_step):
        batch = []
        for _ in range(n_step):
            obs = torch.from_numpy(self.obs)
            action = torch.distributions.Categorical(logits=self.net(obs)[0]).sample()
            self.obs, reward, done, _ = self.envs.step(action.tolist())
            batch.append((obs, action, torch.from_numpy(reward), torch.from_numpy(~done).float()))
        return [torch.stack(x) for x in zip(*batch)]


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_actions, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor, self.critic, self.forecast = nn.Linear(width, n_actions), nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, obs):
        hidden = self.trunk(obs)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def pretrain_forecast(net, frame, optimizer, steps):
    x = np.concatenate([frame, np.zeros((len(frame), 1), np.float32)], 1)
    x[:, 1:5] /= 1000
    x[:, 6] /= 1000
    x, target = torch.from_numpy(x[:-1]), torch.from_numpy(np.sign(np.diff(frame[:, 4])))
    for step in range(steps):
        rows = torch.randint(0, len(x), (256,))
        loss = F.mse_loss(net.forecast(net.trunk(x[rows])).squeeze(-1), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            log.info("forecast step %d loss %.4f", step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-num", type=int, default=3)
    parser.add_argument("--pretrain-steps", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    frame = price_history(20000, seed=5)
    net = ActorCritic(len(COLUMNS) + 1, TradingEnv.n_actions)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    pretrain_forecast(net, frame, optimizer, args.pretrain_steps)
    envs = SubprocVectorEnv([lambda: TradingEnv(frame) for _ in range(args.train_num)])
    log.info("collecting with %d environments", args.train_num)
    collector = Collector(net, envs, seed=10)
    for epoch in range(args.epochs):
        obs, action, reward, alive = collector.collect(64)
        logits, value = net(obs)
        returns, running = torch.zeros_like(reward), value[-1].detach()
        for t in reversed(range(len(reward))):
            running = reward[t] + 0.95 * running * alive[t]
            returns[t] = running
        advantage = returns - value
        dist = torch.distributions.Categorical(logits=logits)
        loss = -(dist.log_prob(action) * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean() - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("epoch %d reward %.3f loss %.3f", epoch, reward.mean().item(), loss.item())
    envs.close()
    log.info("finished")


if __name__ == "__main__":
    main()
