"""PPO with generalised advantage estimation on a cart with a pole (discrete actions)."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class CartPole:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state, self.t = self.rng.uniform(-0.05, 0.05, 4), 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, th, om = self.state
        force = 10.0 if action == 1 else -10.0
        tmp = (force + 0.05 * om ** 2 * math.sin(th)) / 1.1
        acc_th = (9.8 * math.sin(th) - math.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1))
        acc = tmp - 0.05 * acc_th * math.cos(th) / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * om, om + 0.02 * acc_th])
        self.t += 1
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21 or self.t >= 200
        return self.state.astype(np.float32), 1.0, done


class PPO(nn.Module):
    def __init__(self, obs_dim=4, act_dim=2, hidden=64, lr=5e-4, gamma=0.98, lmbda=0.95, clip=0.1, epochs=3):
        super().__init__()
        self.gamma, self.lmbda, self.clip, self.epochs = gamma, lmbda, clip, epochs
        self.data = []
        self.fc1 = nn.Linear(obs_dim, hidden)
        self.fc_pi = nn.Linear(hidden, act_dim)
        self.fc_v = nn.Linear(hidden, 1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr)

    def pi(self, x):
        return F.softmax(self.fc_pi(torch.relu(self.fc1(x))), dim=-1)

    def v(self, x):
        return self.fc_v(torch.relu(self.fc1(x)))

    @torch.no_grad()
    def choose_action(self, obs):
        prob = self.pi(torch.from_numpy(obs))
        action = Categorical(prob).sample().item()
        return action, prob[action].item()

    def put_data(self, transition):
        self.data.append(transition)

    def make_batch(self):
        s, a, r, s2, p, d = zip(*self.data)
        self.data = []
        column = lambda v, kind: torch.tensor(np.array(v), dtype=kind).unsqueeze(1)
        return (torch.tensor(np.array(s)), column(a, torch.int64), column(r, torch.float32),
                torch.tensor(np.array(s2)), column(d, torch.float32), column(p, torch.float32))

    def train_net(self):
        s, a, r, s2, done_mask, prob_a = self.make_batch()
        for _ in range(self.epochs):
            td_target = r + self.gamma * self.v(s2) * done_mask
            delta = (td_target - self.v(s)).detach()
            advantage, adv = torch.zeros_like(delta), 0.0
            for t in reversed(range(len(delta))):
                adv = self.gamma * self.lmbda * adv + delta[t, 0]
                advantage[t, 0] = adv
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
            ratio = torch.exp(torch.log(self.pi(s).gather(1, a)) - torch.log(prob_a))
            surr = torch.min(ratio * advantage, torch.clamp(ratio, 1 - self.clip, 1 + self.clip) * advantage)
            loss = (-surr + F.smooth_l1_loss(self.v(s), td_target.detach())).mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), 5.0)
            self.optimizer.step()
        return loss.item()


def run(args):
    env, model = CartPole(args.seed), PPO()
    recent, steps = [], 0
    for episode in range(args.episodes):
        obs, done, score = env.reset(), False, 0.0
        while not done:
            for _ in range(args.horizon):
                action, prob = model.choose_action(obs)
                nxt, reward, done = env.step(action)
                model.put_data((obs, action, reward / 100.0, nxt, prob, 0.0 if done else 1.0))
                obs, score, steps = nxt, score + reward, steps + 1
                if done:
                    break
            loss = model.train_net()
        recent = (recent + [score])[-20:]
        if (episode + 1) % 10 == 0:
            print(f"episode {episode + 1} steps {steps} score {np.mean(recent):.1f}", flush=True)
    torch.save(model.state_dict(), args.out)
    print("finished with score", float(np.mean(recent)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--episodes", type=int, default=120)
    ap.add_argument("--horizon", type=int, default=20)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", default="ppo_cartpole.pt")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    run(args)


if __name__ == "__main__":
    main()
