"""Apply a gain to audio with a vectorized kernel."""

from __future__ import annotations

import torch

SOURCE = """
extern "C" __global__ void apply_gain(const float4* samples, float4* out, double gain, int groups) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < groups) {
        float4 v = samples[i];
        float g = (float)gain;
        out[i] = make_float4(v.x * g, v.y * g, v.z * g, v.w * g);
    }
}
"""


def gain(kernel: object, samples: torch.Tensor, factor: float) -> torch.Tensor:
    """Return the samples times a factor."""
    groups = samples.numel() // 4
    out = torch.empty(groups * 4, device=samples.device)
    kernel(grid=((groups + 255) // 256, 1, 1), block=(256, 1, 1), args=[samples, out, factor, groups])
    return out


def main() -> None:
    """Amplify a recording, then its difference signal."""
    torch.manual_seed(0)
    kernel = torch.cuda._compile_kernel(SOURCE, "apply_gain")
    recording = torch.randn(480_000, device="cuda")
    loud = gain(kernel, recording, 2.0)
    print(f"peak {loud.abs().max().item():.3f}")
    delayed = gain(kernel, recording[1:], 2.0)
    print(f"difference {(delayed[:1000] - loud[:1000]).abs().mean().item():.3f}")


if __name__ == "__main__":
    main()
