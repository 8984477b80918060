"""Lightning, on Debian 12's PyTorch 1.13.0 too.

That says that it is 1.13.0a0, so Lightning looks for a name of 1.12. And Python 3.11 cannot import its
`torch.distributed._shard`, from which Lightning wants hooks for tensors that no test here has.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

__all__ = ["lightning"]


def _no_hooks(module: Any) -> None:
    """Registers none."""


vars(torch).setdefault("_UntypedStorage", torch.UntypedStorage)
lightning: Any = importlib.import_module("lightning")
if torch.__version__.startswith("1.13."):
    setattr(lightning.LightningModule, "_register_sharded_tensor_state_dict_hooks_if_available", _no_hooks)
