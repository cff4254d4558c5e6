import os
import torch
import torch.nn as nn
import torch.nn.functional as F

OUT = "/tmp/l02_run"


class MaskRCNN(nn.Module):
    def __init__(self, num_classes=21):
        super().__init__()
        self.Conv_Body = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 128, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.RPN = nn.Conv2d(128, 15, 1)
        self.Box_Head = nn.Sequential(nn.Linear(128 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 1024), nn.ReLU())
        self.Box_Outs = nn.Linear(1024, num_classes)

    def forward(self, x):
        feat = self.Conv_Body(x)
        score = self.RPN(feat).mean((1, 2, 3))
        pooled = F.adaptive_avg_pool2d(feat, 7).flatten(1)
        return self.Box_Outs(self.Box_Head(pooled)), score


def make_optimizer(model, cfg):
    bias_params, nonbias_params = [], []
    for part in cfg["parts"]:
        for key, value in getattr(model, part).named_parameters():
            (bias_params if "bias" in key else nonbias_params).append(value)
    params = [
        {"params": nonbias_params, "lr": cfg["lr"], "weight_decay": 1e-4},
        {"params": bias_params, "lr": cfg["lr"] * 2, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(params, lr=cfg["lr"], momentum=0.9, fused=True)


def train(model, optimizer, start, steps):
    for step in range(start, start + steps):
        x = torch.randn(4, 3, 64, 64)
        logits, score = model(x)
        loss = F.cross_entropy(logits, torch.randint(0, 21, (4,))) + score.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"[step {step}] loss {loss.item():.4f}", flush=True)


def save_ckpt(model, optimizer, step):
    os.makedirs(OUT, exist_ok=True)
    path = f"{OUT}/model_step{step}.pth"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


def resume(path, cfg):
    ckpt = torch.load(path)
    model = MaskRCNN()
    model.load_state_dict(ckpt["model"])
    optimizer = make_optimizer(model, cfg)
    optimizer.load_state_dict(ckpt["optimizer"])
    print("loading checkpoint", path, flush=True)
    return model, optimizer, ckpt["step"] + 1


def main():
    torch.manual_seed(0)
    cfg = {"lr": 0.01, "parts": ["Conv_Body", "RPN", "Box_Head", "Box_Outs"]}
    model = MaskRCNN()
    optimizer = make_optimizer(model, cfg)
    train(model, optimizer, 0, 3)
    path = save_ckpt(model, optimizer, 2)

    finetune = {"lr": 0.001, "parts": ["Box_Head", "Box_Outs", "RPN", "Conv_Body"]}
    model, optimizer, start = resume(path, finetune)
    train(model, optimizer, start, 5)


if __name__ == "__main__":
    main()
