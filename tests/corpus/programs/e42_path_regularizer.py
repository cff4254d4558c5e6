import ctypes
import os
import subprocess

import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/e42_path_regularizer"
SOURCE = r"""
#include <stddef.h>

/* latent: [batch, dim]; out: [batch, layers, dim].
   Rows of the second latent are used from layer `cut` on. */
int mix_latents(const float *a, const float *b, float *out,
                int numel, int batch, int layers, int cut)
{
    int dim = numel / batch;
    for (int n = 0; n < batch; n++)
        for (int l = 0; l < layers; l++) {
            const float *src = (l < cut ? a : b) + (size_t)n * dim;
            float *dst = out + ((size_t)n * layers + l) * dim;
            for (int d = 0; d < dim; d++)
                dst[d] = src[d];
        }
    return dim;
}
"""


def build_native():
    os.makedirs(WORK, exist_ok=True)
    src, lib = os.path.join(WORK, "mix.c"), os.path.join(WORK, "libmix.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-fPIC", "-shared", src, "-o", lib], check=True)
    native = ctypes.CDLL(lib)
    native.mix_latents.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 4
    native.mix_latents.restype = ctypes.c_int
    return native


class Mixer:
    def __init__(self, native, layers, dim):
        self.native, self.layers, self.dim = native, layers, dim

    def __call__(self, batch, cut):
        a, b = torch.randn(batch, self.dim), torch.randn(batch, self.dim)
        out = torch.empty(batch, self.layers, self.dim)
        self.native.mix_latents(a.data_ptr(), b.data_ptr(), out.data_ptr(),
                                a.numel(), batch, self.layers, cut)
        return out


class Generator(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.layers = size.bit_length() - 3
        self.const = nn.Parameter(torch.randn(1, 32, 4, 4))
        self.style = nn.ModuleList(nn.Linear(dim, 32) for _ in range(self.layers))
        self.conv = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(self.layers))
        self.rgb = nn.Conv2d(32, 3, 1)

    def forward(self, w):
        x = self.const.expand(len(w), -1, -1, -1)
        for i, (style, conv) in enumerate(zip(self.style, self.conv)):
            x = F.interpolate(x, scale_factor=2)
            x = F.leaky_relu(conv(x * (1 + style(w[:, i])[:, :, None, None])), 0.2)
        return self.rgb(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.LeakyReLU(0.2),
                                  nn.Conv2d(32, 64, 3, 2, 1), nn.LeakyReLU(0.2),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1))

    def forward(self, x):
        return self.body(x)


class Trainer:
    def __init__(self, native, size, batch, dim=64, path_batch_shrink=2, g_reg_every=4):
        self.batch, self.size = batch, size
        self.path_batch_shrink, self.g_reg_every = path_batch_shrink, g_reg_every
        self.g, self.d = Generator(dim, size), Discriminator()
        self.mix = Mixer(native, self.g.layers, dim)
        self.g_opt = torch.optim.Adam(self.g.parameters(), 2e-3, betas=(0.0, 0.99))
        self.d_opt = torch.optim.Adam(self.d.parameters(), 2e-3, betas=(0.0, 0.99))
        self.mean_path = torch.zeros(())

    def cut(self, step):
        return step % self.g.layers

    def discriminator_step(self, real, step):
        with torch.no_grad():
            fake = self.g(self.mix(self.batch, self.cut(step)))
        loss = F.softplus(-self.d(real)).mean() + F.softplus(self.d(fake)).mean()
        self.d_opt.zero_grad()
        loss.backward()
        self.d_opt.step()
        return loss.item()

    def generator_step(self, step):
        loss = F.softplus(-self.d(self.g(self.mix(self.batch, self.cut(step))))).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        return loss.item()

    def path_step(self, step):
        w = self.mix(self.batch // self.path_batch_shrink, self.cut(step)).requires_grad_()
        image = self.g(w)
        noise = torch.randn_like(image) / self.size
        (grad,) = torch.autograd.grad((image * noise).sum(), w, create_graph=True)
        lengths = grad.pow(2).sum(2).mean(1).sqrt()
        self.mean_path = self.mean_path + 0.01 * (lengths.mean().detach() - self.mean_path)
        loss = (lengths - self.mean_path).pow(2).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()

    def run(self, steps):
        for step in range(1, steps + 1):
            real = torch.rand(self.batch, 3, self.size, self.size) * 2 - 1
            d = self.discriminator_step(real, step)
            g = self.generator_step(step)
            if step % self.g_reg_every == 0:
                self.path_step(step)
            if step % 4 == 1:
                print(f"size {self.size} step {step} d {d:.3f} g {g:.3f}", flush=True)


def main():
    torch.manual_seed(0)
    native = build_native()
    budget = 8 * 16 * 16
    for size in (16, 32, 64):
        batch = max(1, budget // (size * size))
        print(f"resolution {size}, batch {batch}", flush=True)
        Trainer(native, size, batch).run(12)
    print("training finished")


if __name__ == "__main__":
    main()
