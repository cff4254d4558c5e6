import queue
import threading

import torch
import torch.nn as nn


def sample_data(batch_size, size):
    images = torch.rand(batch_size, 3, size, size)
    heatmaps = torch.rand(batch_size, 8, size // 4, size // 4)
    return images, heatmaps


def prefetch_data(data_queue, batch_size, size):
    mean = torch.tensor([0.41, 0.45, 0.47]).view(3, 1, 1)
    std = torch.tensor([0.27, 0.26, 0.28]).view(3, 1, 1)
    while True:
        images, heatmaps = sample_data(batch_size, size)
        for _ in range(12):
            flip = torch.rand(batch_size) < 0.5
            images[flip] = images[flip].flip(-1)
            heatmaps[flip] = heatmaps[flip].flip(-1)
            images = (images + 0.02 * torch.randn_like(images)).clamp(0, 1)
        batch = ((images - mean) / std, heatmaps)
        try:
            data_queue.put_nowait(batch)
        except queue.Full:
            data_queue.get()
            data_queue.put(batch)


class KeypointNet(nn.Module):
    def __init__(self, out=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, out, 1),
        )

    def forward(self, x):
        return self.body(x)


def train(max_iter=40, prefetch_size=4):
    training_queue = queue.Queue(prefetch_size)
    workers = [threading.Thread(target=prefetch_data, args=(training_queue, 4, 64), daemon=True) for _ in range(2)]
    for w in workers:
        w.start()
    model = KeypointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4)
    for it in range(1, max_iter + 1):
        images, heatmaps = training_queue.get()
        loss = nn.functional.mse_loss(model(images), heatmaps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            print(f"training loss at iteration {it}: {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), "/tmp/keypointnet_40.pkl")
    print("training finished, snapshot written", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train()
