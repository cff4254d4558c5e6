"""Inpainting of map sheets: a generator fills the torn parts of a sheet, a discriminator
judges it. The generator is warmed up with the L1 loss alone."""
import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class TornSheets(Dataset):
    """Scanned map sheets (contour lines of random hills) with a torn rectangle."""

    def __init__(self, count, size=32, seed=0):
        gen = torch.Generator().manual_seed(seed)
        axis = torch.linspace(-1, 1, size)
        yy, xx = torch.meshgrid(axis, axis, indexing="ij")
        self.sheets, self.masks = [], []
        for _ in range(count):
            height = torch.zeros(size, size)
            for cy, cx, width in (2 * torch.rand(3, 3, generator=gen) - 1).tolist():
                height += torch.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (0.15 + 0.3 * abs(width)))
            mask = torch.zeros(1, size, size)
            top, left = (int(v) for v in torch.randint(4, size // 2, (2,), generator=gen))
            mask[:, top:top + 10, left:left + 10] = 1
            self.sheets.append(torch.sin(12 * height)[None])
            self.masks.append(mask)

    def __len__(self):
        return len(self.sheets)

    def __getitem__(self, index):
        return self.sheets[index], self.masks[index]


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(2, width, 5, padding=2), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.ReLU())
        self.middle = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 3, padding=2, dilation=2), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=4, dilation=4), nn.ReLU())
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 5, padding=2), nn.Tanh())

    def forward(self, sheet, mask):
        return self.decoder(self.middle(self.encoder(torch.cat([sheet * (1 - mask), mask], dim=1))))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 1, 4, stride=1, padding=1))

    def forward(self, sheet):
        return self.features(sheet)


class InpaintingModel:
    def __init__(self, opt):
        self.generator, self.discriminator = Generator(), Discriminator()
        self.gen_optimizer = torch.optim.Adam(self.generator.parameters(), lr=opt.lr, betas=(0.5, 0.9))
        self.dis_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=opt.lr * opt.d2g_lr, betas=(0.5, 0.9))
        self.adv_weight = opt.adv_weight

    def process(self, sheets, masks, adversarial):
        self.gen_optimizer.zero_grad()
        self.dis_optimizer.zero_grad()
        outputs = self.generator(sheets, masks)
        gen_loss = F.l1_loss(outputs, sheets) / masks.mean()
        dis_loss = None
        if adversarial:
            dis_real = self.discriminator(sheets)
            dis_fake = self.discriminator(outputs.detach())
            dis_loss = (F.relu(1 - dis_real).mean() + F.relu(1 + dis_fake).mean()) / 2
            gen_fake = self.discriminator(outputs)
            gen_loss = gen_loss - self.adv_weight * gen_fake.mean()
        return outputs, gen_loss, dis_loss

    def backward(self, gen_loss, dis_loss=None):
        if dis_loss is not None:
            dis_loss.backward()
            self.dis_optimizer.step()
        gen_loss.backward()
        self.gen_optimizer.step()


def train(opt):
    loader = DataLoader(TornSheets(opt.sheets, seed=4), batch_size=opt.batch_size, shuffle=True, drop_last=True)
    model = InpaintingModel(opt)
    for epoch in range(opt.epochs):
        adversarial = epoch >= opt.warmup
        psnr, logs = 0.0, []
        for sheets, masks in loader:
            outputs, gen_loss, dis_loss = model.process(sheets, masks, adversarial)
            model.backward(gen_loss, dis_loss)
            merged = outputs.detach() * masks + sheets * (1 - masks)
            psnr += (-10 * torch.log10(F.mse_loss(merged, sheets) / 4)).item()
            logs.append((gen_loss.item(), dis_loss.item() if dis_loss is not None else 0.0))
        gen_mean, dis_mean = torch.tensor(logs).mean(0).tolist()
        print(f"epoch {epoch} {'adversarial' if adversarial else 'warm-up'} gen {gen_mean:.4f} "
              f"dis {dis_mean:.4f} psnr {psnr / len(loader):.2f}", flush=True)
    torch.save(model.generator.state_dict(), "inpaint_gen.pth")
    print("saved inpaint_gen.pth", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sheets", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--d2g-lr", type=float, default=0.1)
    parser.add_argument("--adv-weight", type=float, default=0.05)
    opt = parser.parse_args()
    torch.manual_seed(10)
    torch.set_num_threads(1)
    train(opt)
