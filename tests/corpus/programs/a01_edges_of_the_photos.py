import torch
import torch.nn as nn


class EdgeGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, x):
        return self.body(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 8, 4, stride=2, padding=1), nn.LeakyReLU(0.2))
        self.head = nn.Conv2d(8, 1, 4, stride=1, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.head(self.features(x)))


class EdgeModel:
    def __init__(self):
        self.generator = EdgeGenerator()
        self.discriminator = Discriminator()
        self.adversarial_loss = nn.BCELoss()
        self.gen_optimizer = torch.optim.Adam(self.generator.parameters(), lr=1e-4)
        self.dis_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=1e-5)

    def process(self, images, edges, masks):
        self.gen_optimizer.zero_grad()
        self.dis_optimizer.zero_grad()
        outputs = self.generator(torch.cat((images, edges * (1 - masks), masks), dim=1))
        dis_real = self.discriminator(torch.cat((images, edges), dim=1))
        dis_fake = self.discriminator(torch.cat((images, outputs.detach()), dim=1))
        dis_loss = (self.adversarial_loss(dis_real, torch.ones_like(dis_real))
                    + self.adversarial_loss(dis_fake, torch.zeros_like(dis_fake))) / 2
        gen_fake = self.discriminator(torch.cat((images, outputs), dim=1))
        gen_loss = self.adversarial_loss(gen_fake, torch.ones_like(gen_fake))
        return outputs, gen_loss, dis_loss

    def backward(self, gen_loss, dis_loss):
        dis_loss.backward()
        self.dis_optimizer.step()
        gen_loss.backward()
        self.gen_optimizer.step()


def train(steps=20):
    torch.manual_seed(0)
    model = EdgeModel()
    for step in range(steps):
        images, edges = torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 32).round()
        masks = torch.zeros(2, 1, 32, 32)
        masks[:, :, 8:24, 8:24] = 1
        outputs, gen_loss, dis_loss = model.process(images, edges, masks)
        model.backward(gen_loss, dis_loss)
        print(f"step {step}: gen {gen_loss.item():.4f} dis {dis_loss.item():.4f}")


if __name__ == "__main__":
    train()
