"""Lookups and pushes of tensors that lie in the memory of a GPU that the server has, too.

A call takes half a millisecond, so Python's own time counts: nothing is made anew that can be kept, and torch
runs no kernels.
"""

from __future__ import annotations

import ctypes
import logging
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from slotwise.client import Client
from slotwise.core import INT64, UINT32, Batch, Gpu, Handle, LookedUp, text
from slotwise.embedding_calls import rates_of, states_of
from slotwise.errors import Error, FailedPrecondition, InvalidArgument, ResourceExhausted
from slotwise.options import TableOptions

_LOG = logging.getLogger("slotwise")

# The keys, offsets and weights of each table.
Lookups = Mapping[str, tuple[Tensor | None, ...]]

_HOST = "host"  # RankInfo.gpu of a server whose device's memory is the host's
_DL_CPU, _DL_CUDA = 1, 2  # DLPack's types of devices

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new_capsule.restype = ctypes.py_object


def gpu_of(ps: Client) -> GpuTransport:
    """Returns a client's transport by the memory of a GPU, which may lead nowhere."""
    if ps._gpu is None:
        ps._gpu = GpuTransport(ps)
    transport: GpuTransport = ps._gpu
    return transport


@dataclass(frozen=True)
class Started:
    """A call that is on its way, with its core's handle."""

    handle: Handle
    device: torch.device
    batches: list[Batch]


class GpuTransport:
    """Sends a client's calls by the memory of a GPU, where they can go there. Thread-safe."""

    def __init__(self, ps: Client) -> None:
        self._ps = ps
        self._lock = threading.Lock()
        self._names: dict[torch.device, bytes] | None = None  # of devices; made with _lock held
        self._beside: dict[torch.device, torch.cuda.Stream] = {}  # used with _lock held
        self._told = False

    def device_of(self, tensors: Iterable[tuple[Tensor | None, ...]]) -> torch.device | None:
        """Returns the device on which all tensors lie, if it is one that the server shares."""
        names = self._devices()
        if not names:
            return None
        device = None
        for some in tensors:
            for each in some:
                if each is None:
                    continue
                if device is None:
                    device = each.device
                elif each.device != device:
                    return None
        return device if device in names else None

    def beside(self, device: torch.device) -> torch.cuda.Stream:
        """Returns the stream in which a GPU's copies for pushes are made and read, one for each GPU."""
        with self._lock:
            stream: torch.cuda.Stream | None = self._beside.get(device)
            if stream is None:
                stream = self._beside[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            return stream

    def lookup(
        self, device: torch.device, lookups: Lookups, options: Mapping[str, TableOptions], train: bool
    ) -> tuple[Tensor, ...] | None:
        """Returns the looked-up values by table, in shared memory; None: the client may go another way."""
        return self.finish_lookup(self.start_lookup(device, lookups, options, train))

    def start_lookup(
        self,
        device: torch.device,
        lookups: Lookups,
        options: Mapping[str, TableOptions],
        train: bool,
        behind: Started | None = None,
    ) -> Started:
        """Starts a lookup that sees the push `behind`. If the push fails, the lookup ends as `Cancelled`."""
        batches = [_batch_of(options[table], *tensors) for table, tensors in lookups.items()]
        self._ps._usable()
        after = None if behind is None else behind.handle
        begin = self._ps._begin_lookup(batches, train, ctypes.byref(self._gpu(device)), after)
        return _started(begin(None), device, batches)

    def finish_lookup(self, started: Started) -> tuple[Tensor, ...] | None:
        """Returns what `lookup` does."""
        call = self._finish(started)
        if call is None:
            return None
        narrow = self._ps._wire_dtype != "float32"
        core, device = self._ps._usable(), started.device
        rows = (_tensor(core, call, i, batch.shape, device) for i, batch in enumerate(started.batches))
        return tuple(each.float() if narrow else each for each in rows)

    def end(self, started: Started) -> None:
        """Cancels a call, and waits for its end."""
        self._ps._usable().end(started.handle)

    def start_push(
        self,
        device: torch.device,
        lookups: Lookups,
        gradients: Mapping[str, Tensor],
        options: Mapping[str, TableOptions],
        step: Any,
        looked_up: Mapping[str, LookedUp],
        rates: Mapping[str, float | None],
    ) -> Started:
        """Starts a push, which `finish_push` waits for.

        Args:
            step: has a name if the client may go another way, because an earlier try may have arrived.
            looked_up: the states that rows were read of; of other tables, the client's latest lookup's.
            rates: the learning rates of this step, of tables that have one.
        """
        batches = []
        for table, gradient in gradients.items():
            batch = _batch_of(options[table], *lookups[table])
            _add_gradients(batch, gradient, self._ps._wire_dtype, self._ps._divisor(step))
            batches.append(batch)
        self._ps._usable()
        states = states_of(gradients, looked_up) if looked_up else None
        gpu = ctypes.byref(self._gpu(device))
        begin = self._ps._begin_push(batches, states, rates_of(gradients, rates), step, gpu)
        return _started(begin(None), device, batches)

    def has_arrays(self, started: Started) -> bool:
        """Whether a push has copied its tensors, which may then be written in the order of the stream."""
        return bool(self._ps._usable().call_has_arrays(started.handle))

    def wait(self, started: Started) -> None:
        """Returns when a call has ended. The call goes on if the wait is interrupted."""
        self._ps._usable().wait_for(started.handle)

    def finish_push(self, started: Started) -> bool:
        """Waits for a push's end, and returns whether it was applied; False: it goes another way."""
        return self._finish(started) is not None

    def _finish(self, started: Started) -> Handle | None:
        """Waits for a call's end; None: the call was refused and goes another way."""
        try:
            return self._ps._usable().finish(started.handle, started.batches)
        except (ResourceExhausted, FailedPrecondition) as error:
            if not self._goes_another_way(started.device, error):
                raise
            return None

    def _goes_another_way(self, device: torch.device, error: Error) -> bool:
        """Whether a refused call goes by the host's memory, where the client may cut it."""
        if self._ps._transport == "gpu":
            return False
        if isinstance(error, FailedPrecondition):
            with self._lock:
                self._names = None
            if device in self._devices():  # the server still shares it: the refusal is of something else
                return False
        if not self._told:
            self._told = True
            _LOG.warning("a call goes by the host's memory, not the GPU's: %s", error)
        return True

    def _gpu(self, device: torch.device) -> Gpu:
        on_host = device.type == "cpu"
        stream = 0 if on_host else torch.cuda.current_stream(device).cuda_stream
        return Gpu(self._devices()[device], stream)

    def _devices(self) -> dict[torch.device, bytes]:
        """Returns the names of the devices that the server shares with this process."""
        names = self._names
        if names is None:
            with self._lock:
                names = self._names = self._find()
        return names

    def _find(self) -> dict[torch.device, bytes]:
        core = self._ps._usable()
        size = core.client_gpus(self._ps._client, None, 0)
        names = ctypes.create_string_buffer(size)
        core.client_gpus(self._ps._client, names, size)
        shared = set(names.value.decode().split())
        found = {torch.device("cpu"): text(_HOST)} if _HOST in shared else {}
        if shared - {_HOST} and torch.cuda.is_available():
            for i in range(torch.cuda.device_count()):
                properties: Any = torch.cuda.get_device_properties(i)
                name = str(properties.uuid).replace("-", "")
                if name in shared:
                    found[torch.device("cuda", i)] = text(name)
        return found


def _batch_of(
    table: TableOptions, keys: Tensor | None, offsets: Tensor | None = None, weights: Tensor | None = None
) -> Batch:
    """Returns a table's batch on a device: the host cannot read what it points to."""
    if keys is None or keys.is_floating_point() or keys.is_complex():
        raise InvalidArgument(f"keys of table {table.name}: must be integers")
    if offsets is not None and keys.ndim != 1:
        raise InvalidArgument(f"keys: shape is {tuple(keys.shape)}, not [keys], though with offsets")
    flat = keys if keys.dtype == torch.int64 else _widened(table, keys)
    flat = flat if flat.is_contiguous() else flat.contiguous()
    bags = count = flat.numel()
    batch, keep = Batch(table.name.encode(), flat.data_ptr(), count), [flat]
    if offsets is not None:
        wide = _offsets(offsets, table.slots, count)
        batch.offsets, batch.offsets_count = wide.data_ptr(), wide.numel()
        batch.offsets_type = INT64 if wide.dtype == torch.int64 else UINT32
        keep.append(wide)
        bags = wide.numel() - 1
    if weights is not None:
        if weights.dtype != torch.float32 or weights.shape != keys.shape:
            raise InvalidArgument(
                f"weights: {weights.dtype} of shape {tuple(weights.shape)} is not float32 of shape "
                f"{tuple(keys.shape)}"
            )
        own = weights.detach().contiguous()
        batch.weights = own.data_ptr()
        keep.append(own)
    batch.keep = tuple(keep)
    batch.shape = (bags // table.slots, table.slots * table.dim)
    if offsets is None and table.combiner == "none":
        batch.shape = (*keys.shape, table.dim)
    return batch


def _add_gradients(batch: Batch, gradient: Tensor, wire_dtype: str, divisor: int) -> None:
    """Adds gradients, divided and converted to the type on the wire."""
    if tuple(gradient.shape) != batch.shape:
        raise InvalidArgument(f"gradients: shape is {tuple(gradient.shape)}, not {batch.shape}")
    if divisor != 1:
        # By a tensor: a GPU would multiply by a number's reciprocal, which has other bits.
        gradient = gradient / torch.tensor(float(divisor), device=gradient.device)
    if wire_dtype != "float32":
        gradient = gradient.to(getattr(torch, wire_dtype))
    own = gradient.detach().contiguous()
    batch.set_values(own, own.data_ptr(), own.numel())


def _started(handle: Handle, device: torch.device, batches: list[Batch]) -> Started:
    handle.keep = batches  # whose tensors must live until the call's end
    return Started(handle, device, batches)


def _widened(table: TableOptions, keys: Tensor) -> Tensor:
    if bool((keys < 0).any()):
        raise InvalidArgument(
            f"keys of table {table.name} are below 0, of {keys.dtype}: only int64 may be, which is "
            f"reinterpreted bit by bit"
        )
    return keys.to(torch.int64)


def _offsets(offsets: Tensor, slots: int, keys: int) -> Tensor:
    if offsets.is_floating_point() or offsets.is_complex() or offsets.ndim != 1:
        raise InvalidArgument(
            f"offsets: {str(offsets.dtype).removeprefix('torch.')} of shape {tuple(offsets.shape)} "
            f"is not a 1-D array of integers"
        )
    if slots > 1 and offsets.numel() % slots == 0:
        offsets = torch.cat([offsets, offsets.new_tensor([keys])])
    if offsets.dtype not in (torch.int64, torch.int32):
        offsets = offsets.to(torch.int64)
    return offsets if offsets.is_contiguous() else offsets.contiguous()


def _tensor(core: Any, call: Handle, index: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Returns the rows of a lookup as a tensor, which owns them."""
    if math.prod(shape) == 0:
        return torch.empty(shape, device=device)
    kind, number = (_DL_CPU, 0) if device.type == "cpu" else (_DL_CUDA, device.index)
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    managed = core.call_dlpack(call, index, kind, number, sizes, len(shape))
    if not managed:
        raise InvalidArgument(f"the rows are not of shape {shape}")
    try:
        tensor: Tensor = from_dlpack(_new_capsule(managed, b"dltensor", None))
    except BaseException:
        core.dlpack_free(managed)  # torch has not taken them
        raise
    return tensor
