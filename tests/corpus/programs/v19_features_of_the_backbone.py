import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class VisionTransformer(nn.Module):
    def __init__(self, embed_dim=128, classes=10):
        super().__init__()
        self.patch_proj = nn.Conv2d(3, embed_dim, kernel_size=14, stride=14)
        self.block = nn.TransformerEncoderLayer(embed_dim, 4, 256, batch_first=True)
        self.head = nn.Linear(embed_dim, classes)

    def forward_features(self, imgs):
        patches = self.patch_proj(imgs).flatten(2).transpose(1, 2)
        return self.block(patches)

    def forward(self, imgs):
        return self.head(self.forward_features(imgs).mean(dim=1))


class Captioner(nn.Module):
    def __init__(self, vocabulary=200, embed_dim=128):
        super().__init__()
        self.vit = VisionTransformer(embed_dim)
        self.llm = nn.TransformerEncoderLayer(embed_dim, 4, 256, batch_first=True)
        self.output = nn.Linear(embed_dim, vocabulary)

    def forward(self, imgs):
        patches = self.vit.forward_features(imgs)
        return self.output(self.llm(patches))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    policy = ModuleWrapPolicy({VisionTransformer, nn.TransformerEncoderLayer})
    model = FSDP(Captioner(), auto_wrap_policy=policy, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(10):
        imgs, tokens = torch.randn(4, 3, 56, 56), torch.randint(0, 200, (4, 16))
        loss = nn.functional.cross_entropy(model(imgs).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
