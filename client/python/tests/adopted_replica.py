"""One of several trainers that adopt a model together, as a process: see test_adopt_parallel.py.

    adopted_replica.py STORE TRAINER TRAINERS KIND ADDRESS [FILE STEPS]
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import slotwise
import slotwise.torch as st

ITEMS, DIM, STEPS, EACH = 30, 4, 12, 4


class Recommender(nn.Module):
    """Scores all items by a history of items, with the items' own weight; tags are there for some batches."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.items = nn.Embedding(ITEMS, DIM)
        self.tags = nn.EmbeddingBag(ITEMS, DIM, mode="mean")
        self.dense = nn.Linear(DIM, DIM)

    def forward(self, items: Tensor, has_tags: bool) -> Tensor:
        """Returns the loss of the last item of each row."""
        history = self.items(items[:, :-1]).sum(1)
        if has_tags:
            history = history + self.tags(items[:, :-1])
        return nn.functional.cross_entropy(self.dense(history).tanh() @ self.items.weight.T, items[:, -1])


def batch(number: int, trainer: int) -> tuple[Tensor, bool]:
    """A trainer's; of three steps all have tags in one, none in another, and one trainer in the third."""
    random = torch.Generator().manual_seed(100 * number + trainer)
    has_tags = (True, False, trainer == 1)[number % 3]
    return torch.randint(0, ITEMS, (8, 5), generator=random), has_tags


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, number: int, trainer: int
) -> list[Tensor | None]:
    """Makes a step; returns the gradients before it where they are clipped, which asks for them."""
    to_none = {"set_to_none": number % 2 == 0}
    if number % 4 < 2:
        optimizer.zero_grad(**to_none)
    else:
        for weight in model.parameters():
            weight.grad = None
    model(*batch(number, trainer)).backward()
    before: list[Tensor | None] = []
    if number % 4 == 3:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        model(*batch(number + STEPS, trainer)).backward()  # adds to what was clipped
        found = [weight.grad for weight in model.parameters()]
        before = [None if grad is None else grad.clone() for grad in found]
    optimizer.step()
    return before


def trains_as_torchs(address: str, trainer: int, grow: str) -> None:
    """Compares with DistributedDataParallel of torch's own modules, step by step."""
    pairs = []
    with slotwise.connect(address, timeout=60) as ps:
        for adopted in (False, True):
            model = Recommender(seed=trainer)  # the first trainer's weights are all trainers'
            optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
            if adopted:
                st.adopt(model, ps, optimizer, prefix="parallel/", grow=bool(grow))
            parallel = DistributedDataParallel(model, find_unused_parameters=True)
            pairs.append((model, parallel, optimizer))
            reduced = parallel._get_ddp_logging_data()["num_parameter_tensors"]
            assert reduced == (2 if adopted else 4), "the dense layer's alone are reduced"
        asked = []
        gather = distributed.all_gather
        distributed.all_gather = lambda *given, **more: (asked.append(given), gather(*given, **more))
        for number in range(STEPS):
            gradients = [train_step(parallel, each, number, trainer) for _, parallel, each in pairs]
            for torchs, mine in zip(*gradients):
                torchs, mine = (torch.zeros(1) if grad is None else grad for grad in (torchs, mine))
                if mine.is_sparse:
                    torchs, mine = torchs[mine.indices()[0]], mine.values()
                torch.testing.assert_close(mine, torchs.expand_as(mine))
            assert bool(asked) == (number % 4 == 3), "gradients travel between trainers if somebody asks"
            asked.clear()
        torchs, ours = pairs[0][0], pairs[1][0]
        torch.testing.assert_close(ours.state_dict(), torchs.state_dict())
        assert ps.describe_table("parallel/items").steps == STEPS
        again = pairs[1][2]
        for turn in range(2):  # the tables are made anew under the names that they had
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                st.release(ours)
            said = [str(each.message) for each in caught]
            assert sum("wrap the model in another one first" in each for each in said) == 1
            torch.testing.assert_close(ours.state_dict(), torchs.state_dict())
            distributed.barrier()
            assert ps.list_tables() == [], "the last that was released has dropped them"
            distributed.barrier()
            if turn == 0:
                st.adopt(ours, ps, again, prefix="parallel/", grow=bool(grow))
                pairs[1] = ours, DistributedDataParallel(ours, find_unused_parameters=True), again
                for _, parallel, each in pairs:
                    train_step(parallel, each, STEPS, trainer)


def fails_together(address: str, trainer: int) -> None:
    """Where one trainer cannot adopt, no trainer has, and another call does."""
    with slotwise.connect(address, timeout=60) as ps:
        model = Recommender(seed=1)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        if trainer == 1:
            model.tags.max_norm = 1.0
        kind, said = slotwise.FailedPrecondition, "failed in trainer 1: InvalidArgument: tags: max_norm is"
        if trainer == 1:
            kind, said = slotwise.InvalidArgument, "tags: max_norm is 1.0"
        expect(kind, said, lambda: st.adopt(model, ps, optimizer))
        model.tags.max_norm = None
        begin = 0.25 if trainer == 1 else 0.0
        other = torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=begin)
        said = "not the first trainer's: adopt(attach=True): optimizer of table items is AdaGrad"
        said = said if trainer == 1 else "failed in trainer 1: FailedPrecond"
        expect(slotwise.FailedPrecondition, said, lambda: st.adopt(model, ps, other))
        distributed.barrier()
        assert ps.list_tables() == [] and type(model.tags) is nn.EmbeddingBag
        distributed.barrier()
        if trainer == 0:
            ps.create_table("tags", dim=DIM + 1, optimizer=slotwise.SGD(1.0))
        distributed.barrier()
        kind, said = slotwise.AlreadyExists, "there is a table tags already"
        if trainer != 0:
            kind, said = slotwise.FailedPrecondition, "failed in trainer 0: AlreadyExists: there is a table"
        expect(kind, said, lambda: st.adopt(model, ps, optimizer))
        distributed.barrier()
        assert [table.name for table in ps.list_tables()] == ["tags"]
        distributed.barrier()
        if trainer == 0:
            ps.drop_table("tags")
        assert set(st.adopt(model, ps, optimizer, read_mib=1e-6)) == {"items", "tags"}
        for _ in range(2):
            model.items.weight.grad = torch.full((ITEMS, DIM), float(trainer))
            assert float(model.items.weight.grad[0, 0]) == 1, "the mean of three trainers"
        asked = model.tags if trainer == 1 else model.items
        expect(slotwise.FailedPrecondition, "ask in the same order", lambda: asked.weight.grad)
        for module in (model.items, model.tags):
            module.weight.grad = None
        DistributedDataParallel(model)  # sends no trainer the first one's rows, which would be too many
        distributed.barrier()
        if trainer == 0:
            st.release(model)  # the others' rows are on the server still
            assert len(ps.list_tables()) == 2
        distributed.barrier()


def expect(kind: type[Exception], said: str, call: object) -> None:
    """Requires an exception with a sentence."""
    try:
        call()  # type: ignore[operator]
    except kind as error:
        assert said in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}")


def is_killed(address: str, trainer: int, file: str, steps: str) -> None:
    """Goes on from the file, and kills itself behind so many steps; at the end writes what it has."""
    path, last = Path(file), int(steps)
    with slotwise.connect(address, timeout=60) as ps:
        model = Recommender(seed=3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        st.adopt(model, ps, optimizer, lazy=True, attach=True)
        done = 0
        if trainer == 0 and not path.exists():
            st.save(path, model, optimizer, done)
        for turn in range(2):  # the first trainer takes the server back
            if path.exists() and turn == min(trainer, 1):
                done = st.load(path, model, optimizer, go_back=True)
            distributed.barrier()
        parallel = DistributedDataParallel(model, find_unused_parameters=True)
        for number in range(done, STEPS):
            train_step(parallel, optimizer, number, trainer)
            if number + 1 == last:
                print("is killed behind step", last, file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if (number + 1) % EACH == 0 and trainer == 0:
                st.save(path, model, optimizer, number + 1)
            distributed.barrier()
        weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
        path.with_suffix(f".{trainer}").write_text(hashlib.sha256(weights).hexdigest(), encoding="utf-8")


def main() -> None:
    """The process."""
    store, trainer, trainers, kind, address, *more = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(trainer), world_size=int(trainers)
    )
    {"trains": trains_as_torchs, "fails": fails_together, "killed": is_killed}[kind](
        address, int(trainer), *more
    )


if __name__ == "__main__":
    main()
