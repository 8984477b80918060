"""Recording, compiling and scaling of models by torch, which rows on a server cannot follow."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from slotwise.errors import FailedPrecondition


def is_exporting(keys: Tensor | None) -> bool:
    """Whether torch records the forward that looks these keys up."""
    # torch.export runs a model on tensors that have a shape and no numbers.
    tracing: Any = torch.jit
    return bool(tracing.is_tracing()) or type(keys).__name__ == "FakeTensor"


def is_autocast_to_float16() -> bool:
    """Whether torch computes in float16 where that is faster, on a GPU or on the CPU."""
    of: Any = torch
    if hasattr(torch, "get_autocast_dtype"):  # from 2.4 on
        return any(
            of.is_autocast_enabled(device) and of.get_autocast_dtype(device) is torch.float16
            for device in ("cuda", "cpu")
        )
    on_gpu = of.is_autocast_enabled() and of.get_autocast_gpu_dtype() is torch.float16
    on_cpu = of.is_autocast_cpu_enabled() and of.get_autocast_cpu_dtype() is torch.float16
    return bool(on_gpu or on_cpu)


def functions_are_transformed() -> bool:
    """Whether a transform of torch.func is under way, as vmap is; torch before 2.0 does not tell."""
    tell = getattr(torch._C, "_are_functorch_transforms_active", None)
    return tell is not None and bool(tell())


def left_to_python(forward: Any) -> Any:
    """Makes `torch.compile` leave a forward() alone: one break in the graph, and none within."""
    disabled: list[Any] = []

    @functools.wraps(forward)
    def run(*args: Any, **options: Any) -> Any:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None or not hasattr(dynamo, "disable"):
            return forward(*args, **options)
        if not disabled:
            disabled.append(dynamo.disable(forward))
        return disabled[0](*args, **options)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    try:
        from torch._C._dynamo.eval_frame import skip_code

        skip_code(run.__code__)
    except ImportError:
        pass  # torch before 2.0 compiles nothing
    return run


def refuse_export(name: str) -> FailedPrecondition:
    """Returns the error of a module that cannot be recorded."""
    return FailedPrecondition(
        f"{name} cannot be traced, scripted or exported, because its rows are on the server, and the rows of "
        f"one batch would become constants: take the plain copy that slotwise.torch.export_module makes"
    )
