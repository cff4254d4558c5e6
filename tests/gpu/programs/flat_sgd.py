import cupy as cp
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
DEVICE = "cuda"

SOURCE = r"""
extern "C" __global__
void sgd_momentum(float* p, const float* g, float* m, float lr, float beta, int n4, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 gv = reinterpret_cast<const float4*>(g)[i];
        float4 mv = reinterpret_cast<float4*>(m)[i];
        float4 pv = reinterpret_cast<float4*>(p)[i];
        mv.x = beta * mv.x + gv.x; mv.y = beta * mv.y + gv.y;
        mv.z = beta * mv.z + gv.z; mv.w = beta * mv.w + gv.w;
        pv.x -= lr * mv.x; pv.y -= lr * mv.y; pv.z -= lr * mv.z; pv.w -= lr * mv.w;
        reinterpret_cast<float4*>(m)[i] = mv;
        reinterpret_cast<float4*>(p)[i] = pv;
    }
    int r = n4 * 4 + i;
    if (i < 4 && r < n) { m[r] = beta * m[r] + g[r]; p[r] -= lr * m[r]; }
}
"""
kernel = cp.RawKernel(SOURCE, "sgd_momentum")


class FlatSGD:
    def __init__(self, params, lr=0.01, beta=0.9):
        self.params, self.lr, self.beta = list(params), lr, beta
        total = sum(p.numel() for p in self.params)
        self.state = torch.zeros(total, device=DEVICE)
        self.momentum, start = [], 0
        for p in self.params:
            self.momentum.append(self.state[start : start + p.numel()])
            start += p.numel()

    def step(self):
        stream = cp.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        with stream:
            for p, m in zip(self.params, self.momentum, strict=True):
                n = p.numel()
                args = (
                    p.data_ptr(),
                    p.grad.data_ptr(),
                    m.data_ptr(),
                    cp.float32(self.lr),
                    cp.float32(self.beta),
                    cp.int32(n // 4),
                    cp.int32(n),
                )
                kernel(((n // 4 + 256) // 256,), (256,), args)


def main():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10), nn.ReLU(), nn.Linear(10, 6)).to(DEVICE)
    optimizer = FlatSGD(model.parameters())
    x = torch.randn(128, 32, device=DEVICE)
    y = torch.randint(0, 6, (128,), device=DEVICE)
    for epoch in range(5):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(epoch, loss.item())


main()
