"""What the server computes, in a few lines of numpy: one table, one row at a time."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from slotwise._proto import admin_pb2

Keys = NDArray[np.uint64]
Offsets = NDArray[np.uint32]
Floats = NDArray[np.float32]


class OracleTable:
    """A table of docs/semantics.md, but for the first values, which are numpy's."""

    def __init__(self, options: admin_pb2.TableOptions) -> None:
        self.options = options
        self.steps = 0
        self.rows: dict[int, Floats] = {}
        self.state: dict[int, Floats] = {}  # AdaGrad's s; Adam's m and v

    def lookup(self, keys: Keys, offsets: Offsets, train: bool) -> Floats:
        """The pooled rows, [bags, dim]."""
        pooled = np.zeros((len(offsets) - 1, self.options.dim), dtype=np.float32)
        for bag, (first, last) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            for key in keys[first:last].tolist():
                if train:
                    self._insert(key)
                if key in self.rows:
                    pooled[bag] += self.rows[key]
        return pooled / self._divisors(offsets)

    def push(self, keys: Keys, offsets: Offsets, gradients: Floats) -> int:
        """One step; `gradients` is [bags, dim]. Returns the count of steps."""
        self.steps += 1
        sums: dict[int, Floats] = {}
        shares = gradients / self._divisors(offsets)
        for bag, (first, last) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            for key in keys[first:last].tolist():
                sums[key] = sums.get(key, np.float32(0)) + shares[bag]
        for key, gradient in sums.items():
            self._insert(key)
            self._update(key, gradient)
        return self.steps

    def digest(self) -> str:
        """A hash that does not depend on the rows' order."""
        whole = hashlib.md5()
        for key in sorted(self.rows):
            whole.update(key.to_bytes(8, "little") + self.rows[key].tobytes())
            whole.update(self.state[key].tobytes())
        return whole.hexdigest()

    def _divisors(self, offsets: Offsets) -> Floats:
        counts = np.diff(offsets.astype(np.int64))
        if self.options.combiner != admin_pb2.COMBINER_MEAN:
            counts = np.ones_like(counts)
        return np.maximum(counts, 1).astype(np.float32)[:, None]

    def _insert(self, key: int) -> None:
        if key in self.rows:
            return
        dim, uniform = self.options.dim, self.options.initializer.uniform
        random = np.random.default_rng([self.options.initializer.seed, key])
        self.rows[key] = random.uniform(uniform.low, uniform.high, dim).astype(np.float32)
        self.state[key] = np.zeros((2, dim), dtype=np.float32)
        self.state[key][0] = self.options.optimizer.adagrad.initial_accumulator

    def _update(self, key: int, g: Floats) -> None:
        optimizer = self.options.optimizer
        row, state, lr = self.rows[key], self.state[key], np.float32(optimizer.learning_rate)
        kind = optimizer.WhichOneof("kind")
        if kind == "adagrad":
            state[0] += g * g
            row -= lr * g / (np.sqrt(state[0]) + np.float32(optimizer.adagrad.epsilon))
        elif kind == "adam":
            beta1, beta2 = np.float32(optimizer.adam.beta1), np.float32(optimizer.adam.beta2)
            state[0] = beta1 * state[0] + (1 - beta1) * g
            state[1] = beta2 * state[1] + (1 - beta2) * g * g
            rate = lr * np.sqrt(1 - beta2**self.steps) / (1 - beta1**self.steps)
            row -= rate * state[0] / (np.sqrt(state[1]) + np.float32(optimizer.adam.epsilon))
        else:
            row -= lr * g
