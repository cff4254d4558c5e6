import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

norm_cfg = dict(type="SyncBN", requires_grad=True)
NORM_LAYERS = {"BN": nn.BatchNorm2d, "SyncBN": nn.SyncBatchNorm}


class ConvModule(nn.Module):
    def __init__(self, in_channels, out_channels, norm_cfg, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn = NORM_LAYERS[norm_cfg["type"]](out_channels)
        for param in self.bn.parameters():
            param.requires_grad = norm_cfg["requires_grad"]
        self.activate = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.activate(self.bn(self.conv(x)))


class EncoderDecoder(nn.Module):
    def __init__(self, num_classes, norm_cfg):
        super().__init__()
        self.backbone = nn.Sequential(ConvModule(3, 16, norm_cfg, 2), ConvModule(16, 32, norm_cfg))
        self.decode_head = nn.Sequential(ConvModule(32, 16, norm_cfg), nn.Conv2d(16, num_classes, 1))

    def forward(self, img, gt_semantic_seg):
        logits = self.decode_head(self.backbone(img))
        logits = nn.functional.interpolate(logits, size=img.shape[2:], mode="bilinear")
        return nn.functional.cross_entropy(logits, gt_semantic_seg, ignore_index=255)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.rand(16, 3, 32, 32), torch.randint(0, 4, (16, 32, 32)))
    loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(EncoderDecoder(4, norm_cfg))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for img, seg in loader:
        loss = model(img, seg)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"decode.loss_ce: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
