"""Transpose matrices with a tiled kernel."""

from __future__ import annotations

import torch

SOURCE = """
extern "C" __global__ void transpose(const float* input, float* output, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns)
        output[(long long)column * rows + row] = input[(long long)row * columns + column];
}
"""


def transpose(kernel: object, matrix: torch.Tensor, tile: tuple[int, int]) -> torch.Tensor:
    """Return the transposed matrix."""
    rows, columns = matrix.shape
    output = torch.empty(columns, rows, device=matrix.device)
    grid = ((columns + tile[0] - 1) // tile[0], (rows + tile[1] - 1) // tile[1], 1)
    kernel(grid=grid, block=(*tile, 1), args=[matrix, output, rows, columns])
    return output


def main() -> None:
    """Try several tile shapes."""
    torch.manual_seed(0)
    kernel = torch.cuda._compile_kernel(SOURCE, "transpose")
    matrix = torch.randn(2048, 4096, device="cuda")
    for tile in [(16, 16), (32, 16), (32, 32), (64, 32)]:
        result = transpose(kernel, matrix, tile)
        print(f"tile {tile}: {'same' if torch.equal(result, matrix.T) else 'different'}")


if __name__ == "__main__":
    main()
