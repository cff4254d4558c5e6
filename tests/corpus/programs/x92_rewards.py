"""Policy gradient on short programs: the reward of a program is how many of its cases pass."""
import argparse
import os
import signal
import subprocess
import sys
import tempfile

import torch
from torch import nn

BODIES = [
    "return x + y",
    "return x - y",
    "return x * y",
    "return max(x, y)",
    "while y:\n        x, y = x + 1, y - 1\n    return x",
    "while y != 0:\n        y = y - 2\n    return x",
]
CASES = [(2, 3, 5), (4, 1, 5), (0, 7, 7), (9, 9, 18)]

HARNESS = """
def solve(x, y):
    {body}

passed = 0
for x, y, expected in {cases!r}:
    passed += solve(x, y) == expected
print(passed)
"""


class Sandbox:
    """Runs a program in a shell of its own, below limits, and for at most `seconds`."""

    def __init__(self, folder, seconds):
        self.folder = folder
        self.seconds = seconds
        self.finished = 0
        self.stopped = 0

    def passed(self, body):
        path = os.path.join(self.folder, f"candidate_{self.finished + self.stopped:04d}.py")
        with open(path, "w") as file:
            file.write(HARNESS.format(body=body, cases=CASES))
        command = f"ulimit -v 1000000; {sys.executable} -I -S {path}"
        process = subprocess.Popen(command, shell=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True)
        try:
            output, _ = process.communicate(timeout=self.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(os.getpgid(process.pid), signal.SIGKILL)
            process.communicate()
            self.stopped += 1
            return 0
        self.finished += 1
        return int(output or 0)


class Policy(nn.Module):
    def __init__(self, choices, width=32):
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(width))
        self.net = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, choices))

    def forward(self, allowed):
        logits = self.net(self.prompt)
        return torch.distributions.Categorical(logits=logits[:allowed])


class Trainer:
    def __init__(self, args, sandbox):
        self.args = args
        self.sandbox = sandbox
        self.policy = Policy(len(BODIES))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.baseline = 0.0

    def rewards(self, actions):
        return torch.tensor([self.sandbox.passed(BODIES[a]) / len(CASES) for a in actions.tolist()])

    def step(self):
        policy = self.policy(self.args.allowed)
        actions = policy.sample((self.args.samples,))
        rewards = self.rewards(actions)
        loss = -(policy.log_prob(actions) * (rewards - self.baseline)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.baseline = 0.9 * self.baseline + 0.1 * rewards.mean().item()
        return loss.item(), rewards.mean().item()

    def save(self, path):
        torch.save({"policy": self.policy.state_dict(), "args": vars(self.args)}, path)


def run_in_background():
    """As started by nohup: a terminal's Ctrl-C is not for this job."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--curriculum", type=int, default=6, help="steps with the easy programs only")
    args = parser.parse_args()
    run_in_background()
    torch.manual_seed(3)

    with tempfile.TemporaryDirectory(prefix="rewards_") as folder:
        trainer = Trainer(args, Sandbox(folder, args.seconds))
        for step in range(args.steps):
            args.allowed = 4 if step < args.curriculum else len(BODIES)
            loss, reward = trainer.step()
            print(f"step {step}: loss {loss:+.4f} reward {reward:.3f}", flush=True)
        trainer.save(os.path.join(folder, "policy.pt"))
        print(f"done, {trainer.sandbox.finished} finished, {trainer.sandbox.stopped} stopped")


if __name__ == "__main__":
    main()
