"""JAX on the CPU."""

import sys

import jax
import jax.numpy as jnp
import plain_deaths


@jax.jit
def step(weights):
    return jnp.mean((jnp.ones((4, 16)) @ weights) ** 2)


def main(death: str) -> None:
    weights = jnp.ones((16, 10))
    for number in range(4):
        if number == 2:
            plain_deaths.die(death)
        weights = weights - 0.01 * jax.grad(step)(weights)
    print(f"loss {float(step(weights)):.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
