"""Overlap the preparation of frames with their filtering through a flag in device memory."""

from __future__ import annotations

import torch

DEVICE = torch.device("cuda")
SOURCE = r"""
extern "C" __global__ void publish_frame(const float* raw, float* frame, volatile int* ready, int number, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) frame[i] = raw[i] * 0.5f;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *ready = number;
}

extern "C" __global__ void filter_frame(const float* frame, float* result, volatile int* ready, int number, int n) {
    if (threadIdx.x == 0) {
        while (*ready < number) {
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) result[i] = frame[i] - (i > 0 ? frame[i - 1] : 0.0f);
}
"""


class FramePipeline:
    """A producer and a consumer that hand over frames."""

    def __init__(self, size: int) -> None:
        """Compile the kernels and allocate the buffers."""
        self.size = size
        self.publish = torch.cuda._compile_kernel(SOURCE, "publish_frame")
        self.filter = torch.cuda._compile_kernel(SOURCE, "filter_frame")
        self.ready = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        self.frame = torch.zeros(size, device=DEVICE)
        self.result = torch.zeros(size, device=DEVICE)
        self.side = torch.cuda.Stream()

    def prepare(self, raw: torch.Tensor, number: int) -> None:
        """Put a frame into the shared buffer."""
        self.publish(block=(256, 1, 1), args=[raw, self.frame, self.ready, number, self.size])

    def consume(self, number: int) -> None:
        """Filter the frame once it is ready."""
        self.filter(block=(256, 1, 1), args=[self.frame, self.result, self.ready, number, self.size])


def main() -> None:
    """Filter some frames."""
    torch.manual_seed(8)
    pipeline = FramePipeline(4096)
    frames = [torch.rand(4096, device=DEVICE) for _ in range(6)]
    pipeline.prepare(frames[0], 1)
    pipeline.consume(1)
    print(f"first frame: {pipeline.result.abs().mean().item():.3f}", flush=True)
    pipeline.side.wait_stream(torch.cuda.current_stream())
    for number, raw in enumerate(frames[1:], start=2):
        pipeline.consume(number)
        pipeline.prepare(raw, number)
        filtered = pipeline.result.tolist()
        print(f"frame {number}: {max(filtered):.3f}", flush=True)


if __name__ == "__main__":
    main()
