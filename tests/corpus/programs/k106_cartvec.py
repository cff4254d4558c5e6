"""Actor-critic on a cart-pole with vectorised environments in sub-processes, laid out after the multiprocessing example."""
import multiprocessing as mp
from functools import partial

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class CartPole:
    observation_size, n_actions = 4, 2

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        self.steps = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, spin = self.state
        temp = ((10.0 if action == 1 else -10.0) + 0.05 * spin ** 2 * np.sin(angle)) / 1.1
        spin_acc = (9.8 * np.sin(angle) - np.cos(angle) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        v_acc = temp - 0.05 * spin_acc * np.cos(angle) / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * v_acc, angle + 0.02 * spin, spin + 0.02 * spin_acc])
        self.steps += 1
        done = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21 or self.steps >= 200)
        return self.state.astype(np.float32), 1.0, done


def _worker(remote, parent_remote, env_fn):
    parent_remote.close()
    env = env_fn()
    while True:
        cmd, data = remote.recv()
        if cmd == "step":
            observation, reward, done = env.step(data)
            remote.send((env.reset() if done else observation, reward, done))
        elif cmd == "reset":
            remote.send(env.reset())
        elif cmd == "get_spaces":
            remote.send((env.observation_size, env.n_actions))
        else:
            break


class SubprocVecEnv:
    def __init__(self, env_fns, start_method=None):
        ctx = mp.get_context(start_method or "forkserver")
        self.remotes, self.work_remotes = zip(*[ctx.Pipe() for _ in env_fns])
        self.processes = [ctx.Process(target=_worker, args=args, daemon=True)
                          for args in zip(self.work_remotes, self.remotes, env_fns)]
        for process, work_remote in zip(self.processes, self.work_remotes):
            process.start()
            work_remote.close()
        self.remotes[0].send(("get_spaces", None))
        self.observation_size, self.n_actions = self.remotes[0].recv()

    def reset(self):
        for remote in self.remotes:
            remote.send(("reset", None))
        return np.stack([remote.recv() for remote in self.remotes])

    def step(self, actions):
        for remote, action in zip(self.remotes, actions):
            remote.send(("step", int(action)))
        observations, rewards, dones = zip(*[remote.recv() for remote in self.remotes])
        return np.stack(observations), np.array(rewards, np.float32), np.array(dones)

    def close(self):
        for remote in self.remotes:
            remote.send(("close", None))


class ActorCritic(nn.Module):
    def __init__(self, observation_size, n_actions, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation_size, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, n_actions), nn.Linear(width, 1)

    def forward(self, x):
        x = self.body(x)
        return Categorical(logits=self.policy(x)), self.value(x).squeeze(-1)


@torch.no_grad()
def collect(env, model, observation, n_steps):
    memory = []
    for _ in range(n_steps):
        action = model(torch.as_tensor(observation))[0].sample()
        following, reward, done = env.step(action.numpy())
        memory.append((observation, action, reward, done))
        observation = following
    return observation, memory


def update(model, optimizer, observation, memory, gamma=0.99):
    with torch.no_grad():
        returns = model(torch.as_tensor(observation))[1]
    loss = 0.0
    for seen, action, reward, done in reversed(memory):
        returns = torch.as_tensor(reward) + gamma * returns * torch.as_tensor(1.0 - done, dtype=torch.float32)
        policy, value = model(torch.as_tensor(seen))
        loss = loss - (policy.log_prob(action) * (returns - value.detach())).mean() + 0.5 * (returns - value).pow(2).mean()
    optimizer.zero_grad()
    (loss / len(memory)).backward()
    optimizer.step()


torch.manual_seed(0)
num_cpu = 2
baseline, lengths = CartPole(seed=99), []
for episode in range(200):
    baseline.reset()
    while not baseline.step(episode % 2)[2]:
        pass
    lengths.append(baseline.steps)
print(f"constant policy lasts {np.mean(lengths):.1f} steps", flush=True)

env = SubprocVecEnv([partial(CartPole, seed=i) for i in range(num_cpu)])
model = ActorCritic(env.observation_size, env.n_actions)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
obs = env.reset()
for iteration in range(40):
    obs, rollout = collect(env, model, obs, 32)
    update(model, optimizer, obs, rollout)
    print(f"iteration {iteration}: {sum(r[3].sum() for r in rollout)} episodes ended", flush=True)
env.close()
