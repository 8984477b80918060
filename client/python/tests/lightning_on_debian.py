"""Lets Lightning run on Debian 12's PyTorch 1.13.0, whatever that says of itself: import this before Lightning.

It says that it is 1.13.0a0, so Lightning looks for a name of 1.12. And Python 3.11 cannot import its
`torch.distributed._shard`, from which Lightning wants hooks for tensors that nobody here has.
"""

from __future__ import annotations

import torch

if torch.__version__.startswith("1.13."):
    vars(torch).setdefault("_UntypedStorage", torch.UntypedStorage)
    import lightning

    lightning.LightningModule._register_sharded_tensor_state_dict_hooks_if_available = (  # type: ignore
        lambda module: None
    )
