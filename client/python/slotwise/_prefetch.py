"""`Prefetch`: a loader's batches, with their rows looked up while the trainer computes."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from slotwise._modules import Found, RemoteEmbedding
from slotwise._tensors import Lookups, own_copies, same_lookups
from slotwise.core import LookedUp
from slotwise.errors import InvalidArgument

_LOG = logging.getLogger("slotwise")

# Seconds that a loop's end waits for a batch that the loader is making, or for a lookup.
_LAST_BATCH = 30.0

Batch = TypeVar("Batch")


class Prefetch(Generic[Batch]):
    """A loader's batches, loaded ahead, with the rows of a module looked up ahead.

        for batch in Prefetch(loader, embedding):
            (keys, offsets), labels = batch
            loss_of(dense(embedding(keys, offsets)), labels).backward()
            optimizer.step()

    It is iterated as the loader is, as often as the loader, and gives the loader's own batches. Within the
    loop the module's `forward()` has the rows at hand for the tensors that `bags` returned or equal ones; for
    others, `forward()` looks up as always. `backward()` hands the push over and returns.

    With `staleness=0` a lookup sees all pushes before it, as in the plain loop, so all rows and losses have
    the same bytes. The lookup of a batch begins when the push of the batch before is acknowledged, beside
    the optimizer of the dense weights. With `staleness=k` the lookup of batch n sees all pushes of batches
    0 .. n - 1 - k; which later pushes it sees differs from run to run. In `eval()` mode nothing is pushed,
    and all is looked up ahead. The mode is that in which the loop begins; a `forward()` in the other mode
    looks up as always.

    Errors are raised in the loop's thread: those of the loader and of `bags` where the batch would have come;
    a lookup's by `forward()`; a push's by the next `forward()`, `backward()`, `flush()`,
    `slotwise.torch.save` or `load`, the client's next call for whole tables, or the loop's end, which waits
    for the last push. Pushes behind a failed one are not sent. A loop that is left early ends the threads
    and waits for pushes in flight; those calls, or `Client.close`, raise their error. The end of a `with`
    does the same, and raises the error.

    The loader works in a thread of its own. So it must make new tensors for each batch, and random numbers
    from a generator that the trainer uses too come in another order than in the plain loop. A loop that is
    left early loses the batches that were loaded; keys that were looked up ahead in `train()` mode have
    rows, which hold their initial values. Rows that the client imports, erases or loads within the loop are
    looked up anew; the client's own `push` is not heeded.

    One thread at a time iterates.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        module: RemoteEmbedding | Sequence[RemoteEmbedding],
        depth: int = 2,
        staleness: int = 0,
        *,
        bags: Callable[[Batch], Any] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Starts nothing until it is iterated.

        Args:
            loader: gives batches; anything that `for` takes.
            module: an `EmbeddingBag`, `Embedding` or `EmbeddingBags`, or several of one client.
            depth: how many batches are loaded before the trainer asks for them, at least 1.
            staleness: how many batches' pushes a lookup may miss.
            bags: returns what `module.forward` takes of a batch: keys, or a tuple or list of its arguments,
                or an `EmbeddingBags`' mapping; of several modules a sequence of these. Runs in the loader's
                thread. None: the first element of a batch that is a tuple or a list, else the batch itself.
            device: where `forward()` gives rows that were looked up ahead. None: the keys' device. For a
                GPU, leave keys on the CPU and name the GPU here: then rows come through pinned memory and
                gradients leave through it, and the trainer's thread waits for neither.

        Raises:
            slotwise.InvalidArgument: an argument makes no sense.
        """
        self._one = isinstance(module, nn.Module)
        modules: list[Any] = [module] if isinstance(module, nn.Module) else list(module)
        for each in modules:
            if not isinstance(each, RemoteEmbedding):
                raise InvalidArgument(
                    f"module: {type(each).__name__} is no EmbeddingBag, Embedding or EmbeddingBags "
                    f"of slotwise.torch"
                )
        if not modules or len(set(map(id, modules))) < len(modules):
            raise InvalidArgument("module: none is given, or one of them twice")
        if any(each._ps is not modules[0]._ps for each in modules):
            raise InvalidArgument("module: they have several clients; give each a Prefetch")
        if depth < 1 or staleness < 0:
            raise InvalidArgument(
                f"depth is {depth} and staleness {staleness}, not at least 1 and at least 0"
            )
        self._loader, self._modules = loader, modules
        self._depth, self._staleness = depth, staleness
        self._bags = _first_of if bags is None else bags
        self._device = None if device is None else torch.device(device)
        self._running: weakref.WeakSet[Iteration] = weakref.WeakSet()

    def __len__(self) -> int:
        """Returns the loader's length; TypeError if it has none."""
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        """Yields the loader's batches."""
        iteration = Iteration(
            self._loader, self._modules, self._lookups, self._depth, self._staleness, self._device
        )
        self._running.add(iteration)
        try:
            iteration.begin()
            while iteration.ask():
                yield iteration.given
            iteration.in_flight.wait()
        finally:
            iteration.close()

    def __enter__(self) -> Prefetch[Batch]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self._modules[0].flush()

    def close(self) -> None:
        """Ends the iterations that are under way, and waits for pushes in flight."""
        for iteration in list(self._running):
            iteration.close()

    def _lookups(self, batch: Batch) -> list[Lookups]:
        """Returns what each module looks up of a batch."""
        found = self._bags(batch)
        each = [found] if self._one else found
        if not isinstance(each, Sequence) or len(each) != len(self._modules):
            raise InvalidArgument(
                f"bags: {type(found).__name__} is no sequence of {len(self._modules)}, one a module"
            )
        return [
            own_copies(module.lookups_of(*_arguments(given))) for module, given in zip(self._modules, each)
        ]


def _first_of(batch: Any) -> Any:
    return batch[0] if isinstance(batch, (tuple, list)) and batch else batch


def _arguments(given: Any) -> Sequence[Any]:
    if isinstance(given, (Tensor, Mapping)):
        return (given,)
    if isinstance(given, (tuple, list)) and given:
        return given
    raise InvalidArgument(
        f"bags: {type(given).__name__} is not what a module takes; bags= says where a batch has it"
    )


@dataclass(eq=False)
class _Lookup:
    """A module's lookup of a batch.

    Attributes:
        seen: the number up to which each table's pushes were settled when the lookup began.
        states: `Pushes.states` at that time.
        looked_up: the tables' states that the rows were read of, as the push of their gradients says.
        done: whether it has rows or an error, or was left out.
    """

    batch: int
    module: RemoteEmbedding
    lookups: Lookups
    done: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    states: int = 0
    looked_up: dict[str, LookedUp] = field(default_factory=dict)
    rows: tuple[Tensor, ...] | None = None
    error: BaseException | None = None


class Iteration:
    """One pass over a loader. The lock of the client's pushes guards all that changes.

    Attributes:
        trains: whether it is under way and its lookups insert rows.
        batch, given: the newest batch that the trainer has asked for: its number, and the batch.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        modules: Sequence[RemoteEmbedding],
        lookups_of: Callable[[Any], list[Lookups]],
        depth: int,
        staleness: int,
        device: torch.device | None,
    ) -> None:
        self._loader, self._modules, self._lookups_of = loader, modules, lookups_of
        self._depth, self._staleness, self._device = depth, staleness, device
        self._trains = {id(module): module.training for module in modules}
        self.trains = any(self._trains.values())
        self.in_flight = modules[0]._ps._pushes
        self._changed = self.in_flight.changed
        self.batch = -1
        self.given: Any = None
        self._loaded: deque[tuple[Any, list[_Lookup]]] = deque()
        self._to_look_up: deque[_Lookup] = deque()
        self._current: dict[int, _Lookup] = {}  # of the trainer's batch, by the module's id
        self._through: set[tuple[int, int]] = set()  # the batch and the module's id of a backward()
        # By batch, the number of each table's newest push; -1 has those of all older batches.
        self._pushed: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._ended = self._closed = False
        self._error: BaseException | None = None  # the loader's
        self._unused = 0
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        """Starts the threads, and lets the modules find their rows here."""
        self.in_flight.watch()
        for module in self._modules:
            module._ahead = (*module._ahead, self)
        with self._changed:  # for which the threads wait as they end
            for name, work in (("loader", self._load), ("lookups", self._look_up)):
                # A loader that never gives its next batch must not keep the program from ending.
                thread = threading.Thread(
                    target=self._run, args=(work,), name=f"slotwise-{name}", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def ask(self) -> bool:
        """Waits for the next batch, which is `given` then; False at the loader's end."""
        with self._changed:
            self.given = None
            self._unused += len(self._current)
            self._current = {}
            self.batch += 1
            self._forget_old()
            self._changed.notify_all()  # the batch before counts as through
            self._changed.wait_for(lambda: self._closed or self._loaded or self._ended)
            if self._loaded and not self._closed:
                self.given, lookups = self._loaded.popleft()
                self._current = {id(lookup.module): lookup for lookup in lookups}
                self._changed.notify_all()
                return True
            if self._error is not None:
                raise self._error
            return False

    def close(self) -> None:
        """Ends the threads, and waits for them and for pushes; closing again is harmless."""
        with self._changed:
            closed, self._closed = self._closed, True
            self.trains = False
            self._changed.notify_all()
        if closed:
            return
        for module in self._modules:
            module._ahead = tuple(each for each in module._ahead if each is not self)
        me = threading.current_thread()  # Python ends lost loops in any thread, as garbage
        with self._changed:
            self._changed.wait_for(lambda: not {*self._threads} - {me}, _LAST_BATCH)
            for thread in {*self._threads} - {me}:
                _LOG.warning("%s goes on: it waits for a batch, or for the server", thread.name)
        self.in_flight.stop_watching()
        self.in_flight.wait_quietly()
        self._loaded.clear()
        self._to_look_up.clear()
        if self._unused:
            _LOG.warning(
                "rows of %d lookups ahead were not used: forward() was not called on what bags() "
                "returned, or not in the mode in which the loop began",
                self._unused,
            )

    def find(self, module: RemoteEmbedding, lookups: Lookups) -> Found | None:
        """Waits for the rows of a forward(), or the lookup's or a push's error; None: none were looked up."""
        with self._changed:
            there = self._current.get(id(module))
        mode = self._trains[id(module)]
        if there is None or mode != module.training or not same_lookups(lookups, there.lookups):
            return None
        lookup = there
        with self._changed:
            if self._current.get(id(module)) is not lookup:
                return None  # another thread was faster
            del self._current[id(module)]
            self._changed.wait_for(lambda: self._closed or lookup.done or self.in_flight.failed)
            self.in_flight.raise_error()
            if not self._is_fresh(lookup):
                return None
            if lookup.error is not None:
                raise lookup.error
            if lookup.rows is None:
                return None
        devices = [keys.device for keys, _, _ in lookups.values() if keys is not None]
        rows = tuple(
            values.to(self._device or device, non_blocking=self._device is not None)
            for values, device in zip(lookup.rows, devices)
        )
        return Found(rows, lookup.lookups, self if mode else None, lookup.batch, lookup.looked_up)

    def pushed(self, module: RemoteEmbedding, batch: int, numbers: Mapping[str, int]) -> None:
        """Takes the numbers of a batch's push; the module's lookups that wait for the push may begin then."""
        with self._changed:
            self._through.add((batch, id(module)))
            self._pushed[batch].update(numbers)
            self._changed.notify_all()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._changed:
                self._threads.remove(threading.current_thread())
                self._changed.notify_all()

    def _load(self) -> None:
        """Is the loader's thread."""
        error: BaseException | None = None
        try:
            for number, batch in enumerate(self._loader):
                lookups = [
                    _Lookup(number, module, each)
                    for module, each in zip(self._modules, self._lookups_of(batch))
                    if each
                ]
                with self._changed:
                    self._loaded.append((batch, lookups))
                    self._to_look_up.extend(lookups)
                    self._changed.notify_all()
                    del batch, lookups
                    self._changed.wait_for(lambda: self._closed or len(self._loaded) < self._depth)
                    if self._closed:
                        break
        except BaseException as raised:
            error = raised
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def _look_up(self) -> None:
        """Is the lookups' thread."""
        while True:
            with self._changed:
                self._changed.wait_for(self._may_go_on)
                if self._closed or not self._to_look_up:
                    return
                lookup = self._to_look_up.popleft()
                module = lookup.module
                lookup.seen = self.in_flight.settled(lookup.lookups)
                lookup.states = self.in_flight.states
                # After an error forward() raises it; batches that are gone need no rows.
                lookup.done = self.in_flight.failed or lookup.batch < self.batch
                if lookup.done:
                    self._changed.notify_all()
                    continue
            rows, error = None, None
            looked_up: dict[str, LookedUp] = {}
            try:
                pinned = self._device is not None and self._device.type == "cuda"
                rows = module.fetch(lookup.lookups, self._trains[id(module)], pinned)
                looked_up = module._ps._looked_up(lookup.lookups)
            except BaseException as raised:
                error = raised
            with self._changed:
                lookup.rows, lookup.error, lookup.done = rows, error, True
                lookup.looked_up = looked_up
                self._changed.notify_all()
            del lookup, rows, error  # or they would live until the next lookup's end

    def _may_go_on(self) -> bool:
        """Whether the lookups' thread can end, or the next lookup begin."""
        if self._closed or not self._to_look_up:
            return self._closed or self._ended
        lookup = self._to_look_up[0]
        last = lookup.batch - 1 - self._staleness  # the newest batch whose pushes it has to see
        through = (
            not self._trains[id(lookup.module)]
            or last < self.batch
            or (last, id(lookup.module)) in self._through
        )
        settled = self.in_flight.settled(lookup.lookups)
        needed = self._needed(lookup)
        return self.in_flight.failed or (through and all(settled[t] >= needed[t] for t in needed))

    def _needed(self, lookup: _Lookup) -> dict[str, int]:
        """Returns the number up to which each table's pushes must be seen, as is known now."""
        if self._staleness == 0:
            return self.in_flight.handed(lookup.lookups)  # by this loop or by others
        needed = dict.fromkeys(lookup.lookups, 0)
        for batch, numbers in self._pushed.items():
            if batch < lookup.batch - self._staleness:
                for table in needed.keys() & numbers.keys():
                    needed[table] = max(needed[table], numbers[table])
        return needed

    def _is_fresh(self, lookup: _Lookup) -> bool:
        """Whether a lookup saw all that it must, by what is known when its rows are used."""
        needed = self._needed(lookup)
        return lookup.states == self.in_flight.states and all(
            lookup.seen[table] >= number for table, number in needed.items()
        )

    def _forget_old(self) -> None:
        """Keeps only the newest pushes of the batches that every lookup from now on has to see."""
        for batch in [b for b in self._pushed if 0 <= b < self.batch - self._staleness]:
            oldest = self._pushed[-1]
            for table, number in self._pushed.pop(batch).items():
                oldest[table] = max(oldest.get(table, 0), number)
        oldest_batch = self.batch - 1 - self._staleness
        self._through = {each for each in self._through if each[0] >= oldest_batch}
