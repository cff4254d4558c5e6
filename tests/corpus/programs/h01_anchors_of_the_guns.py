import torch
from torch import nn

ANCHORS = torch.tensor([[1.25, 1.625], [2.0, 3.75], [4.125, 2.875]])
ANCHOR_T = 4.0


class TinyDetector(nn.Module):
    def __init__(self, num_classes=2):
        super().__init__()
        self.num_outputs = num_classes + 5
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=8, padding=1), nn.SiLU(),
            nn.Conv2d(16, 3 * self.num_outputs, 3, stride=4, padding=1))

    def forward(self, images):
        out = self.backbone(images)
        batch, _, height, width = out.shape
        return out.view(batch, 3, self.num_outputs, height, width).permute(0, 1, 3, 4, 2).contiguous()


class ComputeLoss:
    def __init__(self):
        self.bce = nn.BCEWithLogitsLoss()

    def __call__(self, prediction, targets):
        tbox, (image, anchor, gj, gi) = self.build_targets(prediction, targets)
        tobj = torch.zeros_like(prediction[..., 0])
        matched = prediction[image, anchor, gj, gi]
        tobj[image, anchor, gj, gi] = 1.0
        lbox = (matched[:, :4].sigmoid() - tbox).abs().mean()
        return lbox + self.bce(prediction[..., 4], tobj)

    def build_targets(self, prediction, targets):
        num_targets = targets.shape[0]
        gain = torch.ones(7)
        anchor_index = torch.arange(3).float().view(3, 1).repeat(1, num_targets)
        targets = torch.cat((targets.repeat(3, 1, 1), anchor_index[:, :, None]), 2)
        gain[2:6] = torch.tensor(prediction.shape)[[3, 2, 3, 2]]
        scaled = targets * gain
        ratio = scaled[:, :, 4:6] / ANCHORS[:, None]
        chosen = torch.max(ratio, 1.0 / ratio).max(2)[0] < ANCHOR_T
        scaled = scaled[chosen]
        image, _ = scaled[:, :2].long().T
        gxy, gwh = scaled[:, 2:4], scaled[:, 4:6]
        gij = gxy.long()
        gi, gj = gij.T
        anchor = scaled[:, 6].long()
        indices = (image, anchor, gj.clamp_(0, gain[3] - 1), gi.clamp_(0, gain[2] - 1))
        return torch.cat((gxy - gij, gwh), 1), indices


def train(epochs=3):
    torch.manual_seed(0)
    model = TinyDetector()
    compute_loss = ComputeLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937)
    for epoch in range(epochs):
        images = torch.rand(4, 3, 256, 256)
        targets = torch.cat((torch.arange(4.0)[:, None], torch.randint(0, 2, (4, 1)).float(),
                             torch.rand(4, 2), 0.2 + 0.4 * torch.rand(4, 2)), 1)
        loss = compute_loss(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    train()
