"""A torch module whose rows live on the server."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from slotwise.client import Client
from slotwise.session import Session


class EmbeddingBag(nn.Module):
    """Looks a table up in `forward()` and pushes the gradient in `backward()`.

    The server's optimizer moves the rows, so the module has no parameters. Every `forward()` whose
    result is used in a `backward()` is one step of the table, applied when `backward()` returns; an
    error of the push is raised there. `train()` looks up with new rows for new keys; `eval()`
    inserts nothing and its result takes no gradient.

    Thread-safe as `Client` is. Not to be pickled or forked: it holds connections.

    Attributes:
        dim, slots: the table's; a result has slots * dim columns.
    """

    def __init__(self, ps: Client, table: str, *, session: Session | None = None) -> None:
        """Uses a table that exists.

        Args:
            session: names the steps; None: `ps.session`. Data-parallel trainers give one that they
                share.

        Raises:
            slotwise.NotFound: no such table.
        """
        super().__init__()
        options = ps.describe_table(table).options
        self.dim, self.slots = options.dim, options.slots
        self._ps = ps
        self._table = table
        self._session = session or ps.session
        # Keys take no gradient; autograd calls backward() for the sake of this. It is no Parameter
        # because nobody is to train it.
        self._anchor = torch.zeros(0, requires_grad=True)

    def forward(self, keys: Tensor, offsets: Tensor | None = None) -> Tensor:
        """The pooled rows, float32 [samples, slots * dim], on the keys' device.

        Args:
            keys: int64 [keys], any 64 bits; without offsets also [samples, slots].
            offsets: integers [samples * slots + 1] from 0 to `len(keys)`; None: one key a bag.
        """
        if self.training:
            return _LookupAndPush.apply(self._anchor, self, keys, offsets)
        return self._lookup(keys, offsets)

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        return f"{self._table!r}, slots={self.slots}, dim={self.dim}"

    def _lookup(self, keys: Tensor, offsets: Tensor | None) -> Tensor:
        values = self._ps.lookup(self._table, _array(keys), _array(offsets), train=self.training)
        return torch.from_numpy(values).to(keys.device)

    def _push(self, keys: Tensor, offsets: Tensor | None, gradient: Tensor) -> None:
        self._ps.push(
            self._table, _array(keys), _array(offsets), _array(gradient), step=self._session.next()
        )


class _LookupAndPush(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, _anchor: Tensor, bag: EmbeddingBag, keys: Tensor, offsets: Tensor | None
    ) -> Tensor:
        ctx.bag = bag
        # Saved, not kept: autograd then refuses a backward() after the keys were overwritten.
        ctx.save_for_backward(keys, offsets)
        return bag._lookup(keys, offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None]:
        ctx.bag._push(*ctx.saved_tensors, gradient)
        return None, None, None, None


def _array(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().cpu().numpy()
