"""Start the two-rank denoiser training from a login session, follow its log for a while, then log out."""
import argparse
import os
import pty
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return x - self.net(x)


def patches(count, size=24):
    generator = torch.Generator().manual_seed(2)
    phase = torch.rand(count, 2, 1, 1, generator=generator) * 6.28
    grid = torch.linspace(0, 6.28, size)
    clean = torch.sin(grid[None, :, None] * 2 + phase[:, 0]) * torch.cos(grid[None, None, :] + phase[:, 1])
    return clean.unsqueeze(1), torch.randn(count, 1, size, size, generator=generator) * 0.3


def train(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    clean, noise = patches(256)
    dataset = TensorDataset(clean + noise, clean)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for noisy, target in loader:
            loss = F.mse_loss(model(noisy), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        time.sleep(args.epoch_pause)
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.5f}", flush=True)
            torch.save(model.module.state_dict(), "denoiser.pt")
    if rank == 0:
        print("all epochs done", flush=True)
    dist.destroy_process_group()


class LoginSession:
    """A terminal of its own, as sshd opens one for a login."""

    def __init__(self, log_path):
        self.log_path = log_path
        self.position = 0

    def run(self, command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], command)

    def show_log(self):
        if not os.path.exists(self.log_path):
            return ""
        with open(self.log_path, errors="replace") as log:
            log.seek(self.position)
            text = log.read()
            self.position = log.tell()
        sys.stdout.write(text)
        sys.stdout.flush()
        return text

    def follow(self, until, limit):
        end = time.time() + limit
        while time.time() < end and until not in self.show_log():
            time.sleep(0.3)

    def logout(self):
        os.close(self.terminal)
        print("-- logged out, training goes on in the background --", flush=True)

    def wait(self):
        _, status = os.waitpid(self.pid, 0)
        self.show_log()
        return os.waitstatus_to_exitcode(status)


def launch(args):
    if os.path.exists("nohup.out"):
        os.remove("nohup.out")
    torchrun = shutil.which("torchrun", path=os.path.dirname(sys.executable)) or "torchrun"
    command = ["nohup", torchrun, "--standalone", "--nproc-per-node=2", os.path.abspath(__file__), "--train",
               f"--epochs={args.epochs}"]
    session = LoginSession("nohup.out")
    session.run(command)
    session.follow("epoch 3", limit=25)
    session.logout()
    code = session.wait()
    print(f"training job ended with {code}", flush=True)
    return code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--epoch-pause", type=float, default=0.2)
    args = parser.parse_args()
    sys.exit(train(args) if args.train else launch(args))


if __name__ == "__main__":
    main()
