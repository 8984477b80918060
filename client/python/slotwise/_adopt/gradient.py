"""The gradient of an adopted weight: its place, the rows that it touches, and the mean over all trainers."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from slotwise._adopt.weight import as_plain
from slotwise._row_norms import over_trainers, summed_over
from slotwise.errors import FailedPrecondition, InvalidArgument

# Keys, int64 [rows], and the gradient of each one's row, float32 [rows, dim].
Touched = tuple[NDArray[np.int64], NDArray[np.float32]]


class WeightGradient:
    """The gradient of a weight [rows, dim] that a table has.

    Torch keeps the gradient as every other. But a weight that grows has rows for ids for which the weight's
    own gradient has no place: then lookups give their gradients to a parameter that has a row for every id
    and no memory, and `value` is the sparse sum of both.

    Attributes:
        anchor: takes the gradients of lookups; None: the weight does, because it does not grow.
        group: the process group of the trainers whose gradients make a step, in a tuple; None: one trainer.
        is_left_out: whether a DistributedDataParallel was told that the weight needs no gradient.
        is_hidden: whether the gradient has been pushed and is hidden at the moment.
    """

    def __init__(self, name: str, weight: nn.Parameter, grows: bool) -> None:
        """Changes nothing until `hold`."""
        self.weight = weight
        self.anchor: nn.Parameter | None = None
        self.group: tuple[Any] | None = None
        self.is_hidden = self.is_left_out = False
        self._name, self._grows = name, grows
        self._sparse = False  # whether a gradient that another trainer alone has is to be sparse
        self._held: Tensor | None = None  # of a weight that grows: the sum as of the last read
        self._is_mean = False  # whether the gradient is the mean over all trainers already
        self._hooks: list[Any] = []  # called for each gradient that autograd adds

    @property
    def is_special(self) -> bool:
        """Whether a read of `grad` must get something else than torch's own gradient."""
        return self.group is not None or self.anchor is not None

    def hold(self, sparse: bool) -> None:
        """Begins, when a table has the weight's rows; `sparse`: as the modules say."""
        self._sparse = sparse or self._grows
        if self._grows:
            self._make_anchor(self.weight.device)
        if self.group is not None:
            hooked = [each for each in (self.weight, self.anchor) if each is not None and each.requires_grad]
            self._hooks = [each.register_hook(lambda _: self.lose_mean()) for each in hooked]

    def let_go(self) -> None:
        """Ends, when the weight has its rows again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self.anchor, self._held = [], None, None

    def move(self, value: Tensor | None, device: torch.device) -> None:
        """Moves `value` to the weight's new device, and makes it the gradient."""
        if self.anchor is not None:
            self._make_anchor(device)
        if value is not None:
            self.value = value.to(device)

    def source(self) -> Tensor:
        """Returns the parameter that takes the gradients of lookups."""
        if self.anchor is None:
            return self.weight
        return self.anchor.requires_grad_(self.weight.requires_grad)

    @property
    def value(self) -> Tensor | None:
        """This trainer's gradient, or the mean over all trainers after `gather`."""
        with as_plain():
            own = self.weight.grad
        if self.anchor is None:
            return own
        news = [each for each in (own, self.anchor.grad) if each is not None]
        if news:
            with torch.inference_mode(False), torch.no_grad():
                parts = [_sparse_parts(each) for each in (self._held, *news) if each is not None]
                keys, values = (torch.cat(each) for each in zip(*parts))
                shape = self.anchor.shape
                self._held = torch.sparse_coo_tensor(keys[None], values, shape).coalesce()
            self._clear()
        return self._held

    @value.setter
    def value(self, value: Tensor | None) -> None:
        if self.anchor is not None:
            self._clear()
            self._held = value
            return
        with as_plain():
            self.weight.grad = value

    def gather(self) -> None:
        """Makes the gradient the mean over all trainers, as DistributedDataParallel would.

        A collective of the trainers' process group, if there are several: all trainers ask for the gradient
        of a weight, as clip_grad_norm_ and GradScaler do. A trainer without a gradient gets one if another
        trainer has one.

        FailedPrecondition: other trainers ask for another weight's.
        """
        if self.group is None or self.is_hidden:
            return
        group = self.group[0]
        fresh = torch.tensor([not self._is_mean, crc32(self._name.encode())], dtype=torch.int64)
        of_all = over_trainers(group, fresh)
        if any(int(each[1]) != int(fresh[1]) for each in of_all):
            raise FailedPrecondition(
                f"trainers ask for gradients of different weights at once, this one for that of table "
                f"{self._name}: ask in the same order in all trainers"
            )
        if not any(bool(each[0]) for each in of_all):
            return
        own, device = self.value, self.weight.device
        keys, gradients = nothing(self.weight) if own is None else _touched(own.detach())
        mine = torch.from_numpy(keys).to(device), torch.from_numpy(gradients).to(device)
        total = summed_over(group, [mine])
        self._is_mean = True
        if total is None:
            return
        keys_of_all, sums = total[0]
        sums /= distributed.get_world_size(group)
        shape = self.weight.shape if self.anchor is None else self.anchor.shape
        with torch.inference_mode(False), torch.no_grad():
            if self._sparse if own is None else own.is_sparse:
                self.value = torch.sparse_coo_tensor(keys_of_all[None], sums, shape).coalesce()
            else:
                self.value = torch.zeros(shape, device=device).index_copy_(0, keys_of_all, sums)

    def lose_mean(self) -> None:
        """Has the next `gather` ask for the trainers' gradients again."""
        self._is_mean = False

    def touched(self) -> Touched | None:
        """Returns the rows that the gradient touches; None: there is no gradient, and so no step.

        A gradient that touches no row is a step, as in torch. InvalidArgument: the gradient is not finite,
        which the server would refuse.
        """
        value = self.value
        if value is None:
            return None
        keys, gradients = _touched(value.detach())
        if not np.isfinite(gradients).all():
            raise InvalidArgument(f"{self._name}: the weight's gradient has NaN or infinity")
        return keys, gradients

    def _make_anchor(self, device: torch.device) -> None:
        dim = self.weight.shape[1]
        self.anchor = nn.Parameter(torch.zeros(1, 1, device=device).expand(most_ids(dim), dim))

    def _clear(self) -> None:
        assert self.anchor is not None
        self.anchor.grad = None
        with as_plain():
            self.weight.grad = None


def most_ids(dim: int) -> int:
    """Returns how many ids a growing weight may have: torch counts all elements in 63 bits."""
    return int((1 << 62) // max(1, dim))


def nothing(weight: Tensor) -> Touched:
    """Returns the gradients of no rows."""
    return np.zeros(0, np.int64), np.zeros((0, weight.shape[1]), np.float32)


def _sparse_parts(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Returns keys and values of a gradient's rows, some of them perhaps twice."""
    if gradient.is_sparse:
        return gradient._indices()[0], gradient._values()
    rows = (gradient != 0).any(dim=1).nonzero()[:, 0]
    return rows, gradient[rows]


def _touched(gradient: Tensor) -> Touched:
    if gradient.is_sparse and gradient._nnz() == 0:  # zero_grad() may have left one of another shape
        return nothing(gradient)
    if gradient.is_sparse:
        gradient = gradient.coalesce()
    keys, values = _sparse_parts(gradient)
    return keys.cpu().numpy(), values.cpu().float().contiguous().numpy()
