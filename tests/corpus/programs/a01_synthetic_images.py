import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dlipc", type=int, default=2, help="images per class")
    parser.add_argument("--num_classes", type=int, default=10)
    parser.add_argument("--dllr_img", type=float, default=0.1)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--dldevice", default="cpu")
    return parser.parse_args()


def get_network(channel, num_classes, im_size):
    return nn.Sequential(
        nn.Conv2d(channel, 16, 3, padding=1),
        nn.InstanceNorm2d(16),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * (im_size[0] // 2) * (im_size[1] // 2), num_classes),
    )


def match_loss(gw_syn, gw_real):
    return sum(1 - F.cosine_similarity(a.flatten(), b.flatten(), dim=0) for a, b in zip(gw_syn, gw_real))


def condense(args, images, labels):
    channel, im_size = images.shape[1], images.shape[2:]
    image_syn = torch.randn(size=(args.num_classes * args.dlipc, channel, im_size[0], im_size[1]),
                            dtype=torch.float, requires_grad=True, device=args.dldevice) * 0.01
    label_syn = torch.arange(args.num_classes, device=args.dldevice).repeat_interleave(args.dlipc)
    optimizer_img = torch.optim.SGD([image_syn, ], lr=args.dllr_img, momentum=0.5)

    for it in range(args.iterations):
        net = get_network(channel, args.num_classes, im_size).to(args.dldevice)
        params = list(net.parameters())
        gw_real = torch.autograd.grad(F.cross_entropy(net(images), labels), params)
        gw_syn = torch.autograd.grad(F.cross_entropy(net(image_syn), label_syn), params, create_graph=True)
        loss = match_loss(gw_syn, gw_real)
        optimizer_img.zero_grad()
        loss.backward()
        optimizer_img.step()
        print(f"iter {it}: loss {loss.item():.4f}")
    return image_syn.detach(), label_syn


if __name__ == "__main__":
    torch.manual_seed(0)
    args = get_args()
    images = torch.rand(64, 3, 32, 32)
    labels = torch.randint(0, args.num_classes, (64,))
    condense(args, images, labels)
