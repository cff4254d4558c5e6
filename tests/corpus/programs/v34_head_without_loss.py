# ImprintLab/MedSegDiff#27, Megvii-BaseDetection/YOLOX#885: Expected to have finished reduction in the prior iteration
import torch
import torch.distributed as dist


class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Linear(8, 8)
        self.boxes = torch.nn.Linear(8, 4)
        self.masks = torch.nn.Linear(8, 16)

    def forward(self, x):
        x = self.backbone(x)
        return {"boxes": self.boxes(x), "masks": self.masks(x)}


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Detector())
for step in range(3):
    outputs = model(torch.randn(4, 8))
    outputs["boxes"].sum().backward()
dist.destroy_process_group()
