import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
DEVICE = "cuda"
N_ACTIONS = 6
OBS = 24


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.pi = nn.Linear(128, N_ACTIONS)
        self.v = nn.Linear(128, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class ActionLog:
    """Actions are logged in the numbering of the game's manual."""

    def __init__(self):
        self.counts = torch.zeros(N_ACTIONS + 1, device=DEVICE)

    def record(self, actions):
        numbered = actions.data
        numbered += 1
        self.counts += torch.bincount(numbered.flatten(), minlength=N_ACTIONS + 1)


def rollout(steps, envs):
    obs = torch.randn(steps * envs, OBS, device=DEVICE)
    actions = torch.arange(steps * envs, device=DEVICE).remainder(N_ACTIONS).unsqueeze(1)
    returns = torch.randn(steps * envs, device=DEVICE)
    return obs, actions, returns


def main():
    policy = Policy().to(DEVICE)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    log = ActionLog()
    for epoch in range(3):
        obs, actions, returns = rollout(64, 16)
        logits, values = policy(obs)
        logp = F.log_softmax(logits, dim=-1)
        chosen = logp.gather(1, actions).squeeze(1)
        advantage = returns - values.detach()
        log.record(actions)
        policy_loss = -(chosen * advantage).mean()
        value_loss = F.mse_loss(values, returns)
        loss = policy_loss + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        torch.cuda.synchronize()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        print(epoch, round(loss.item(), 4), round(norm.item(), 4))
    print(log.counts.tolist())


main()
