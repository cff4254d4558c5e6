import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class TextEncoder(nn.Module):
    def __init__(self, phonemes=100, hidden=32):
        super().__init__()
        self.bert = nn.Sequential(nn.Embedding(phonemes, hidden), nn.Linear(hidden, hidden), nn.ReLU())
        self.proj = nn.Linear(hidden, hidden)

    def forward(self, x):
        return self.proj(self.bert(x))


class SynthesizerTrn(nn.Module):
    def __init__(self, bands=20):
        super().__init__()
        self.enc_p = TextEncoder()
        self.dec = nn.Linear(32, bands)

    def forward(self, x):
        return self.dec(self.enc_p(x))


def train_and_evaluate(epoch, epochs, net_g, optimizer, loader, device_rank):
    frozen = epoch < epochs // 4
    for child in net_g.enc_p.bert.children():
        for param in child.parameters():
            param.requires_grad = not frozen
    for phonemes, mel in loader:
        loss = nn.functional.l1_loss(net_g(phonemes), mel)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if device_rank == 0:
        print(f"====> Epoch: {epoch} {loss.item():.4f}")


def run(epochs=4):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1234)
    dataset = TensorDataset(torch.randint(0, 100, (64, 30)), torch.randn(64, 30, 20))
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))
    net_g = SynthesizerTrn()
    optimizer = torch.optim.AdamW(net_g.parameters(), 2e-4)
    net_g = DistributedDataParallel(net_g, find_unused_parameters=True)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        train_and_evaluate(epoch, epochs, net_g, optimizer, loader, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
