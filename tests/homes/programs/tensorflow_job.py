"""TensorFlow on the CPU."""

import sys

import plain_deaths
import tensorflow as tf


def main(death: str) -> None:
    tf.random.set_seed(0)
    weights = tf.Variable(tf.ones([16, 10]))
    for step in range(4):
        if step == 2:
            plain_deaths.die(death)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.ones([4, 16]), weights)))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
    print(f"loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
