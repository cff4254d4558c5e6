import errno
import glob
import io
import os
import tempfile

import torch
import torch.nn as nn


class Volume:
    def __init__(self, root, capacity):
        self.root, self.capacity = root, capacity

    def write(self, name, data):
        used = sum(os.path.getsize(p) for p in glob.glob(os.path.join(self.root, "*")))
        with open(os.path.join(self.root, name), "wb") as f:
            f.write(data[:max(0, self.capacity - used)])
        if used + len(data) > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)


class Net(nn.Module):
    def __init__(self, charset=98):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU())
        self.lstm = nn.LSTM(32, 64, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(128, charset)

    def forward(self, images):
        x = self.cnn(images).mean(dim=2).transpose(1, 2)
        return self.fc(self.lstm(x)[0]).log_softmax(-1)


class Train:
    def __init__(self, project, volume):
        print(f"Start Train ----> {project}")
        self.project, self.volume = project, volume
        self.net, self.epoch, self.step = Net(), 0, 0
        print("Search for history checkpoints...")
        history = sorted(glob.glob(os.path.join(volume.root, "*.tar")), key=lambda p: int(p.split("_")[-1][:-4]))
        if history:
            state = torch.load(history[-1], map_location="cpu")
            self.net.load_state_dict(state["net"])
            self.epoch, self.step = state["epoch"], state["step"]
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.ctc = nn.CTCLoss(zero_infinity=True)

    def start(self, steps):
        for _ in range(steps):
            log_probs = self.net(torch.randn(4, 1, 32, 96)).transpose(0, 1)
            lengths = torch.full((4,), log_probs.size(0)), torch.full((4,), 4)
            loss = self.ctc(log_probs, torch.randint(1, 98, (4, 4)), *lengths)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.step % 2 == 0:
                buffer = io.BytesIO()
                torch.save({"net": self.net.state_dict(), "epoch": self.epoch, "step": self.step}, buffer)
                self.volume.write(f"checkpoint_{self.project}_{self.step}.tar", buffer.getvalue())


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        volume = Volume(root, capacity=1_200_000)
        try:
            Train("images98", volume).start(50)
        except OSError as e:
            print(f"stopped: {e}")
        volume.capacity = 50_000_000
        Train("images98", volume).start(50)
