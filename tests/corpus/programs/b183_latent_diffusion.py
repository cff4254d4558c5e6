import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("ldm")


class BrainSlices(Dataset):
    def __init__(self, n=64, size=32):
        g = torch.Generator().manual_seed(11)
        coarse = torch.rand(n, 1, 4, 4, generator=g)
        self.images = nn.functional.interpolate(coarse, size=size, mode="bicubic", align_corners=False)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i]}


class AutoencoderKL(nn.Module):
    def __init__(self, latent=3, ch=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, ch, 3, 2, 1), nn.SiLU(), nn.Conv2d(ch, ch, 3, 2, 1), nn.SiLU())
        self.quant_mu = nn.Conv2d(ch, latent, 1)
        self.quant_log_sigma = nn.Conv2d(ch, latent, 1)
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(latent, ch, 3, 1, 1), nn.SiLU(),
            nn.Upsample(scale_factor=2), nn.Conv2d(ch, 1, 3, 1, 1))

    def encode(self, x):
        h = self.encoder(x)
        return self.quant_mu(h), torch.exp(self.quant_log_sigma(h).clamp(-30, 20) / 2)

    def forward(self, x):
        mu, sigma = self.encode(x)
        z = mu + sigma * torch.randn_like(sigma)
        return self.decoder(z), mu, sigma

    def encode_stage_2_inputs(self, x):
        mu, sigma = self.encode(x)
        return mu + sigma * torch.randn_like(sigma)


class DiffusionUNet(nn.Module):
    def __init__(self, latent=3, ch=32):
        super().__init__()
        self.time = nn.Linear(1, ch)
        self.inp = nn.Conv2d(latent, ch, 3, 1, 1)
        self.out = nn.Sequential(nn.SiLU(), nn.Conv2d(ch, ch, 3, 1, 1), nn.SiLU(), nn.Conv2d(ch, latent, 3, 1, 1))

    def forward(self, z, t):
        return self.out(self.inp(z) + self.time(t[:, None])[:, :, None, None])


def train_autoencoder(model, loader, sampler, epochs):
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            recon, mu, sigma = model(batch["image"])
            kl = 0.5 * (mu ** 2 + sigma ** 2 - torch.log(sigma ** 2 + 1e-8) - 1).mean()
            loss = nn.functional.l1_loss(recon, batch["image"]) + 1e-6 * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("autoencoder epoch %d loss %.4f", epoch, loss.item())


def train_diffusion(unet, autoencoder, loader, sampler, epochs):
    opt = torch.optim.Adam(unet.parameters(), 1e-3)
    first = next(iter(loader))
    with torch.no_grad():
        z = autoencoder.encode_stage_2_inputs(first["image"])
    scale_factor = 1 / z.std()
    log.info("scaling factor %.4f", scale_factor)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            with torch.no_grad():
                z = autoencoder.encode_stage_2_inputs(batch["image"]) * scale_factor
            t = torch.rand(len(z))
            noise = torch.randn_like(z)
            a = torch.cos(t * torch.pi / 2)[:, None, None, None]
            noisy = a * z + (1 - a ** 2).clamp(min=0).sqrt() * noise
            loss = nn.functional.mse_loss(unet(noisy, t), noise)
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("diffusion epoch %d loss %.4f", epoch, loss.item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ae-epochs", type=int, default=3)
    ap.add_argument("--ldm-epochs", type=int, default=3)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{dist.get_rank()}] %(message)s")
    torch.manual_seed(100 + dist.get_rank())
    data = BrainSlices()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    autoencoder = DDP(AutoencoderKL())
    train_autoencoder(autoencoder, loader, sampler, args.ae_epochs)
    unet = DDP(DiffusionUNet())
    train_diffusion(unet, autoencoder, loader, sampler, args.ldm_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
