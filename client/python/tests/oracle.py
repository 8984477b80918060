"""What the server computes, in a few lines of numpy: one table, one row at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from google.protobuf import json_format
from numpy.typing import NDArray
from slotwise_proto import admin_pb2 as pb

from slotwise import Client
from slotwise.options import TableOptions, options_to_json

Keys = NDArray[np.uint64]
Offsets = NDArray[np.uint32]
Floats = NDArray[np.float32]

F = np.float32
_ODD = 0x9E3779B97F4A7C15


def proto_of(options: TableOptions) -> pb.TableOptions:
    """A table's options as their message."""
    return json_format.ParseDict(options_to_json(options), pb.TableOptions())


class OracleTable:
    """A table of docs/semantics.md, but for the initial values, which are simpler."""

    def __init__(self, options: pb.TableOptions) -> None:
        self.options = options
        self.steps = 0
        self.rate = options.optimizer.learning_rate
        self.rows: dict[int, Floats] = {}
        self.state: dict[int, Floats] = {}  # in the order of docs/semantics.md

    @classmethod
    def with_rows_of(cls, ps: Client, options: TableOptions, keys: Keys) -> OracleTable:
        """A table with the server's first rows of these keys."""
        table = cls(proto_of(options))
        bags = np.minimum(np.arange(len(keys) * options.slots + 1), len(keys))
        rows = ps.lookup(options.name, keys, bags).reshape(-1, options.dim)
        for key, row in zip(keys.tolist(), rows):
            table.insert(key)
            table.rows[key] = row.copy()
        return table

    def lookup(self, keys: Keys, offsets: Offsets, train: bool, weights: Floats | None = None) -> Floats:
        """The pooled rows, [bags, dim]."""
        pooled = np.zeros((len(offsets) - 1, self.options.dim), dtype=F)
        for bag, (first, last) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            for at in range(first, last):
                key = int(keys[at])
                if train:
                    self.insert(key)
                if key in self.rows:
                    row = self.rows[key]
                    pooled[bag] += row if weights is None else weights[at] * row
            divisor = self._divisor(int(last - first), weights, slice(first, last))
            pooled[bag] = pooled[bag] / divisor if divisor else 0
        return pooled

    def push(
        self,
        keys: Keys,
        offsets: Offsets,
        gradients: Floats,
        weights: Floats | None = None,
        rate: float | None = None,
    ) -> int:
        """One step, at its own rate if it has one; `gradients` is [bags, dim]. Returns the count of steps."""
        self.steps += 1
        rate = self.learning_rate(self.steps) if rate is None else rate
        terms: dict[int, list[Floats]] = {}
        for bag, (first, last) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            divisor = self._divisor(int(last - first), weights, slice(first, last))
            if not divisor:
                continue  # nothing comes of the bag, not even rows
            for at in range(first, last):
                weighted = gradients[bag] if weights is None else gradients[bag] * weights[at]
                term = weighted / divisor
                terms.setdefault(int(keys[at]), []).append(term)
        for key, some in terms.items():
            self.insert(key)
            before = self.rows[key].copy(), self.state[key].copy()
            with np.errstate(all="ignore"):
                self._update(key, _tree_sum(some), F(rate))
            self._keep_finite(key, *before)
        return self.steps

    def learning_rate(self, step: int) -> float:
        """What the step of this number (1 for the first) runs at."""
        schedule = self.options.optimizer.schedule
        power = schedule.decay_power if schedule.HasField("decay_power") else 2.0
        if step <= schedule.warmup_steps:
            return self.rate * step / schedule.warmup_steps
        if schedule.decay_steps == 0 or step <= schedule.decay_start:
            return self.rate
        done = min(step - schedule.decay_start, schedule.decay_steps) / schedule.decay_steps
        end = schedule.end_learning_rate
        return float(end + (self.rate - end) * (1 - done) ** power)

    def state_size(self) -> int:
        """Floats of state a row."""
        kind = self.options.optimizer.WhichOneof("kind") or "sgd"
        vectors = {"sgd": 0, "adam": 2, "ftrl": 2}.get(kind, 1)
        return 1 if kind == "rowwise_adagrad" else vectors * self.options.dim

    def insert(self, key: int) -> None:
        """Gives a key a row, if it has none."""
        if key in self.rows:
            return
        dim, uniform = self.options.dim, self.options.initializer.uniform
        low, width, seed = uniform.low, uniform.high - uniform.low, self.options.initializer.seed
        mixed = [((2 * key + 1) * _ODD * j ^ seed) * _ODD % 2**64 for j in range(1, dim + 1)]
        self.rows[key] = np.array([low + (m >> 40) * 2.0**-24 * width for m in mixed], dtype=F)
        if self.options.initializer.WhichOneof("kind") == "constant":
            self.rows[key][:] = self.options.initializer.constant.value
        self.state[key] = self.first_state()

    def first_state(self) -> Floats:
        """The state of a new row."""
        optimizer = self.options.optimizer
        state = np.zeros(self.state_size(), dtype=F)
        if optimizer.WhichOneof("kind") in ("adagrad", "rowwise_adagrad"):
            state[:] = getattr(optimizer, optimizer.WhichOneof("kind")).initial_accumulator
        return state

    def digest(self) -> str:
        """A hash that does not depend on the rows' order."""
        whole = hashlib.md5()
        for key in sorted(self.rows):
            whole.update(key.to_bytes(8, "little") + self.rows[key].tobytes())
            whole.update(self.state[key].tobytes())
        return whole.hexdigest()

    def _divisor(self, keys: int, weights: Floats | None, bag: slice) -> np.float32:
        """What a bag's sum is divided by; 0: the result is zeros."""
        combiner = self.options.combiner
        if combiner not in (pb.COMBINER_MEAN, pb.COMBINER_SQRTN):
            return F(1)
        mean = combiner == pb.COMBINER_MEAN
        if weights is None:
            return F(keys) if mean else np.sqrt(F(keys))
        total = F(0)
        for weight in weights[bag]:
            total += weight if mean else weight * weight
        return total if mean else np.sqrt(total)

    def _keep_finite(self, key: int, row: Floats, state: Floats) -> None:
        """Elements that the step has made infinite or NaN become what they were."""
        if self.options.optimizer.WhichOneof("kind") == "rowwise_adagrad":
            if not np.isfinite(self.state[key]).all():
                self.rows[key], self.state[key] = row, state
            keep = ~np.isfinite(self.rows[key])
            self.rows[key][keep] = row[keep]
            return
        after = np.concatenate([self.rows[key], self.state[key]]).reshape(-1, len(row))
        keep = ~np.isfinite(after).all(axis=0)
        self.rows[key][keep] = row[keep]
        self.state[key].reshape(-1, len(row))[:, keep] = state.reshape(-1, len(row))[:, keep]

    def _update(self, key: int, g: Floats, lr: np.float32) -> None:
        optimizer = self.options.optimizer
        w, s = self.rows[key], self.state[key]
        kind = optimizer.WhichOneof("kind") or "sgd"
        constants = getattr(optimizer, kind)
        decoupled = kind == "adam" and constants.decoupled_decay
        g = g + F(optimizer.weight_decay) * w if optimizer.weight_decay and not decoupled else g
        dim = len(w)
        if kind == "sgd":
            w -= lr * g
        elif kind == "momentum":
            s[:] = F(constants.momentum) * s - lr * g
            w += s
        elif kind == "nesterov":
            mu, before = F(constants.momentum), s.copy()
            s[:] = mu * s - lr * g
            w += -mu * before + (1 + mu) * s
        elif kind == "adagrad":
            s += g * g
            w -= lr * g / (np.sqrt(s) + F(constants.epsilon))
        elif kind == "rowwise_adagrad":
            total = F(0)
            for element in g:
                total += element * element
            s += total / F(dim)
            w -= lr * g / (np.sqrt(s) + F(constants.epsilon))
        elif kind == "rmsprop":
            beta = F(constants.beta)
            s[:] = beta * s + (1 - beta) * (g * g)
            w -= lr * g / (np.sqrt(s) + F(constants.epsilon))
        elif kind == "adam":
            beta1, beta2, (m, v) = F(constants.beta1), F(constants.beta2), s.reshape(2, dim)
            m[:] = beta1 * m + (1 - beta1) * g
            v[:] = beta2 * v + (1 - beta2) * (g * g)
            t = self.steps
            alpha = F(float(lr) * np.sqrt(1 - float(beta2) ** t) / (1 - float(beta1) ** t))
            epsilon = F(constants.epsilon)
            if constants.corrected_epsilon:
                epsilon = F(float(epsilon) * np.sqrt(1 - float(beta2) ** t))
            if decoupled:
                w *= F(1 - float(lr) * float(F(optimizer.weight_decay)))
            w -= alpha * m / (np.sqrt(v) + epsilon)
        else:
            z, n = s.reshape(2, dim)
            now = n + g * g
            z += g - (np.sqrt(now) - np.sqrt(n)) / lr * w
            n[:] = now
            slope = (F(constants.beta) + np.sqrt(n)) / lr + F(constants.lambda2)
            moved = (np.sign(z) * F(constants.lambda1) - z) / slope
            w[:] = np.where(np.abs(z) <= F(constants.lambda1), F(0), moved)


def _tree_sum(terms: Sequence[Floats]) -> Floats:
    """The sum of blocks of 32, of blocks of 32 of those, and so on."""
    while len(terms) > 1:
        sums = []
        for first in range(0, len(terms), 32):
            total = terms[first].copy()
            for term in terms[first + 1 : first + 32]:
                total += term
            sums.append(total)
        terms = sums
    return terms[0]
