"""One outermost backward() is one step of all tables that it touches, as one optimizer's step is torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from fake_server import FakeServer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from twins import ENDS, KEYS, OPTIMIZERS, ROWS, Modules, zeros
from waiting import run_at_once

import slotwise
import slotwise.torch as st
from slotwise._backward import session_of

ITEMS = torch.tensor([5, 3, 5])


def steps_of(ps: slotwise.Client, table: str = "items") -> int:
    return ps.describe_table(table).steps


def row(ps: slotwise.Client, key: int, table: str = "items") -> float:
    return float(ps.lookup(table, np.array([key]), train=False).flat[0])


class Twins(Modules):
    """Two tables, whose modules of ours push by backward() alone."""

    def run(self, loss_of: Callable[[dict[str, Any], int], Tensor], passes: int = 5) -> None:
        """Trains both, one backward() a step, and compares rows and counts of steps."""
        for step in range(passes):
            self.optimizer.zero_grad()
            loss_of(self.theirs, step).backward()
            self.optimizer.step()
            loss_of(self.ours, step).backward()
        self.compare(rtol=2e-5)
        assert self.steps() == {passes}


def user_and_items(models: dict[str, Any], step: int) -> Tensor:
    """Candidates and history of one table, and bags of another one twice, once with weights."""
    history = models["items"](KEYS).sum(0)
    candidates = models["items"]((ITEMS + step) % ROWS)
    bags = models["bags"](KEYS, ENDS)
    weighted = models["bags"](KEYS.flip(0), ENDS, torch.linspace(0.5, 2, len(KEYS)))
    return (candidates @ history).tanh().sum() + 0.1 * (bags * weighted.sin()).sum()


def added_up(models: dict[str, Any], step: int) -> Tensor:
    return sum((user_and_items(models, 3 * step + i) for i in range(3)), torch.zeros(()))


@pytest.mark.parametrize("loss_of", [user_and_items, added_up], ids=lambda each: each.__name__)
@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_several_forwards_of_a_table_are_one_step_as_torchs(
    any_ps: slotwise.Client, kind: str, in_flight: bool, loss_of: Any
) -> None:
    Twins(any_ps, kind, in_flight=in_flight).run(loss_of)


def test_the_numbers_of_adagrad_and_adam(any_ps: slotwise.Client) -> None:
    module = zeros(any_ps, slotwise.AdaGrad(lr=0.1))
    key = torch.tensor([7])
    (module(key) + module(key)).sum().backward()
    assert steps_of(any_ps) == 1
    assert row(any_ps, 7) == pytest.approx(-0.1, rel=1e-6)
    any_ps.drop_table("items")
    module = zeros(any_ps, slotwise.Adam(lr=0.1))
    for _ in range(3):
        (module(key) + module(key)).sum().backward()
    assert steps_of(any_ps) == 3
    assert row(any_ps, 7) == pytest.approx(-0.3, rel=1e-5)


def test_a_backward_over_several_modules_is_one_request(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    twins = Twins(fake_ps, "sgd")
    before = len(fake.requests("PushMany")), len(fake.requests("Push"))
    user_and_items(twins.ours, 0).backward()
    assert (len(fake.requests("PushMany")), len(fake.requests("Push"))) == (before[0] + 1, before[1])
    assert steps_of(fake_ps) == steps_of(fake_ps, "bags") == 1


def test_a_backward_that_raises_pushes_nothing_and_keeps_nothing(any_ps: slotwise.Client) -> None:
    module = zeros(any_ps, slotwise.SGD(lr=1.0))
    dense = torch.ones(1, requires_grad=True)

    def fail(_: Tensor) -> None:
        raise RuntimeError("no gradient today")

    hook = dense.register_hook(fail)
    # The rows' gradient comes first, and then the pass fails.
    later = dense * 1.0
    loss = (later * later).sum() + module(torch.tensor([1, 2])).sum()
    with pytest.raises(RuntimeError, match="no gradient today"):
        loss.backward()
    hook.remove()
    assert steps_of(any_ps) == 0
    module(torch.tensor([2])).sum().backward()
    assert steps_of(any_ps) == 1
    assert [row(any_ps, key) for key in (1, 2)] == [0.0, -1.0]


def test_a_backward_over_a_graph_is_a_step_of_what_hooks_have_made(any_ps: slotwise.Client) -> None:
    """A second one over the same graph is a second step."""
    module = zeros(any_ps, slotwise.SGD(lr=1.0))
    first, second = module(torch.tensor([1])), module(torch.tensor([1]))
    loss = (first + second).sum()
    loss.backward(retain_graph=True)
    assert (steps_of(any_ps), row(any_ps, 1)) == (1, -2.0)
    first.register_hook(lambda gradient: gradient * 10)
    second.register_hook(lambda gradient: gradient * 100)
    loss.backward()
    assert (steps_of(any_ps), row(any_ps, 1)) == (2, -112.0)


def test_other_gradients_push_nothing(any_ps: slotwise.Client) -> None:
    """Those that are asked for alone; a gradient of a gradient is refused."""
    module = zeros(any_ps, slotwise.SGD(lr=1.0))
    dense = torch.ones(1, requires_grad=True)
    rows = module(torch.tensor([1]))
    (of_dense,) = torch.autograd.grad((rows * dense).sum() + dense.sum(), [dense], retain_graph=True)
    (of_rows,) = torch.autograd.grad((rows * 3).sum(), [rows], retain_graph=True)
    assert (of_dense, of_rows) == (1.0, 3.0)
    with pytest.raises(slotwise.FailedPrecondition, match=r"backward\(create_graph=True\) goes through a"):
        (rows * dense).sum().backward(create_graph=True)
    assert steps_of(any_ps) == 0
    module(torch.tensor([1])).sum().backward()
    assert steps_of(any_ps) == 1


def test_errors_of_the_push_come_out_of_backward_as_they_are(any_ps: slotwise.Client) -> None:
    module = zeros(any_ps, slotwise.SGD(lr=1.0))
    loss = (module(torch.tensor([1])) + module(torch.tensor([2]))).sum()
    any_ps.drop_table("items")
    with pytest.raises(slotwise.NotFound, match="items") as kept:
        loss.backward()
    # A caller that keeps the error keeps nothing that the next pass would take for its own.
    module = zeros(any_ps, slotwise.SGD(lr=1.0))
    module(torch.tensor([1])).sum().backward()
    assert steps_of(any_ps) == 1 and kept.value.code == slotwise.StatusCode.NOT_FOUND


def test_what_is_pushed_has_the_order_of_the_forwards(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    module = zeros(fake_ps, slotwise.SGD(lr=1.0))
    keys = [torch.tensor([[5], [1]]), torch.tensor([7], dtype=torch.int32), torch.tensor(3)]
    first, second, third = (module(each).sum() for each in keys)
    (third * 4 + first * 2 + second * 3).backward()
    (request,) = fake.requests("Push")
    assert np.frombuffer(request.keys, np.uint64).tolist() == [5, 1, 7, 3]
    assert np.frombuffer(request.gradients, np.float32).tolist() == [2.0, 2.0, 3.0, 4.0]


def test_modules_of_several_clients_get_a_step_each(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    module, keys = zeros(fake_ps, slotwise.SGD(lr=1.0)), torch.tensor([1, 1])
    with slotwise.connect(fake.addresses[0], timeout=30.0) as another:
        of_another = st.Embedding(another, "items")
        (module(keys) + of_another(keys) + module(keys)).sum().backward()
    assert (steps_of(fake_ps), row(fake_ps, 1)) == (2, -6.0)


def test_the_clients_own_session_is_one_however_it_is_named(any_ps: slotwise.Client) -> None:
    module = zeros(any_ps, slotwise.SGD(lr=1.0))
    named = st.Embedding(any_ps, "items", session=any_ps.session)
    (module(torch.tensor([1])) + named(torch.tensor([1]))).sum().backward()
    assert (steps_of(any_ps), row(any_ps, 1)) == (1, -2.0)
    # Its steps have no name here, so that the client may renew it once a server has forgotten it.
    assert session_of(module._of_steps) is session_of(named._of_steps) is None
    another = slotwise.Session()
    assert session_of(st.Embedding(any_ps, "items", session=another)._of_steps) is another
    any_ps.session = another
    assert session_of(module._of_steps) is another


def test_models_in_several_threads_make_steps_of_their_own(any_ps: slotwise.Client) -> None:
    begin = slotwise.Constant(0.0)
    for name in "abcd":
        any_ps.create_table(name, dim=1, combiner="none", optimizer=slotwise.SGD(lr=1.0), initializer=begin)

    def train(name: str, times: int) -> None:
        module = st.Embedding(any_ps, name)
        for _ in range(10):
            rows = [module(torch.tensor([1])).sum() for _ in range(times)]
            torch.stack(rows).sum().backward()

    run_at_once(*(partial(train, name, 1 + i) for i, name in enumerate("abcd")))
    found = [(steps_of(any_ps, name), row(any_ps, 1, name)) for name in "abcd"]
    assert found == [(10, -10.0 * (1 + i)) for i in range(4)]


class TestCheckpointing:
    def test_what_is_computed_again_gets_the_rows_of_the_first_time(
        self, fake: FakeServer, fake_ps: slotwise.Client
    ) -> None:
        module = zeros(fake_ps, slotwise.SGD(lr=1.0))
        fake_ps.import_rows("items", [1, 2], np.array([[3.0], [5.0]], np.float32))
        dense = torch.ones(1, requires_grad=True)

        def part_of_the_model(keys: Tensor) -> Tensor:
            return (module(keys) * dense).square().sum()

        losses = []
        for keys, rows in (([1], [7.0, 5.0]), ([2], [300.0, 500.0]), ([1], [300.0, 500.0])):
            losses.append(checkpoint(part_of_the_model, torch.tensor(keys), use_reentrant=False))
            # Somebody changes the rows between the forwards, and before the backward.
            fake_ps.import_rows("items", [1, 2], np.array(rows, np.float32)[:, None])
        lookups = len(fake.requests("Lookup"))
        (losses[0] + losses[1] + losses[2]).backward()
        assert len(fake.requests("Lookup")) == lookups
        assert dense.grad is not None
        assert dense.grad.item() == 2 * (9 + 25 + 300**2)
        assert [row(fake_ps, key) for key in (1, 2)] == [300.0 - 2 * (3 + 300), 500.0 - 2 * 5]
        assert steps_of(fake_ps) == 1

    def test_what_is_computed_again_is_not_what_the_model_wrote_over(self, fake_ps: slotwise.Client) -> None:
        """And a graph that is gone keeps nothing."""
        module = zeros(fake_ps, slotwise.SGD(lr=1.0))
        fake_ps.import_rows("items", [1], np.array([[3.0]], np.float32))
        dense = torch.ones(1, requires_grad=True)

        def model(keys: Tensor) -> Tensor:
            return (module(keys).mul_(10) * dense).sum()

        for passes in (1, 2, 3):
            dense.grad, before = None, row(fake_ps, 1)
            checkpoint(model, torch.tensor([1]), use_reentrant=False).backward()
            assert dense.grad is not None and dense.grad.item() == 10 * before
            assert (steps_of(fake_ps), row(fake_ps, 1)) == (passes, before - 10)
            assert sum(each() is not None for each in module._kept._kept) == 0

    def test_keys_that_are_drawn_anew_are_refused(self, fake_ps: slotwise.Client) -> None:
        module = zeros(fake_ps, slotwise.SGD(lr=1.0))
        drawn = iter([[1, 2], [3, 4]])

        def model(scale: Tensor) -> Tensor:
            return (module(torch.tensor(next(drawn))).squeeze() * scale).square().sum()

        loss = checkpoint(model, torch.ones(2, requires_grad=True), use_reentrant=False)
        # Torch wraps what its own unpacking of saved tensors raises.
        with pytest.raises(
            (slotwise.FailedPrecondition, RuntimeError), match="looks up other keys of items than at first"
        ):
            loss.backward()
        assert steps_of(fake_ps) == 0

    def test_reentrant_checkpointing_is_refused(self, any_ps: slotwise.Client) -> None:
        module = zeros(any_ps, slotwise.SGD(lr=1.0))
        dense = torch.ones(2, requires_grad=True)

        def model(scale: Tensor) -> Tensor:
            return (module(torch.tensor([1, 2])).squeeze() * scale).sum()

        def hook(_: Tensor) -> None:
            with torch.enable_grad():
                model(torch.ones(2)).backward()

        outer = dense * 2
        outer.register_hook(hook)
        for loss in (checkpoint(model, dense, use_reentrant=True), outer.sum()):
            with pytest.raises(slotwise.FailedPrecondition, match="a backward.. inside another one"):
                loss.backward()
        assert steps_of(any_ps) == 0


RECORDERS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "trace": lambda model, keys: torch.jit.trace(model, keys),
    "script": lambda model, keys: torch.jit.script(model),
    "onnx": lambda model, keys: torch.onnx.export(model.eval(), (keys,), "/dev/null"),
}


@pytest.mark.parametrize("how", RECORDERS)
def test_a_model_is_not_recorded_with_the_rows_of_one_batch(fake_ps: slotwise.Client, how: str) -> None:
    ours = nn.Sequential(zeros(fake_ps, slotwise.SGD(lr=1.0)), nn.Linear(1, 1))
    with pytest.raises(slotwise.FailedPrecondition, match="cannot be replicated by torch.nn.DataParallel"):
        ours[0]._replicate_for_data_parallel()
    # The exporter of torch 2.9 and later raises an error of its own, which quotes ours.
    error = Exception if how == "onnx" else slotwise.FailedPrecondition
    with pytest.raises(error, match="traced, scripted or exported, .*export_module"):
        RECORDERS[how](ours, torch.tensor([1, 2]))
    adopted = nn.Sequential(nn.EmbeddingBag(9, 2), nn.Linear(2, 1))
    st.adopt(adopted, fake_ps, torch.optim.SGD(adopted.parameters(), lr=0.1))
    with pytest.raises(error, match="module of table 0 cannot be traced, scripted or"):
        RECORDERS[how](adopted, torch.tensor([[1, 2]]))
    st.release(adopted)


def test_float16_autocast_is_refused_where_it_trains(fake_ps: slotwise.Client) -> None:
    module, keys = zeros(fake_ps, slotwise.SGD(lr=1.0)), torch.tensor([1])
    bfloat16 = torch.autocast("cpu", dtype=torch.bfloat16)
    with bfloat16:
        module(keys).sum().backward()
    with autocast_to_float16():
        with pytest.raises(slotwise.FailedPrecondition, match="items is trained under float16 autocast"):
            module(keys)
        with torch.no_grad():
            module(keys)
        module.eval()
        module(keys)
    assert (steps_of(fake_ps), row(fake_ps, 1)) == (1, -1.0)


@contextmanager
def autocast_to_float16() -> Iterator[None]:
    """As torch.autocast(dtype=torch.float16), which older versions have for GPUs alone."""
    torch.set_autocast_gpu_dtype(torch.float16)
    torch.set_autocast_enabled(True)
    try:
        yield
    finally:
        torch.set_autocast_enabled(False)


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch before 2.0 compiles nothing")
def test_a_compiled_models_graph_breaks_once_at_a_forward(fake_ps: slotwise.Client) -> None:
    import torch._dynamo

    module = zeros(fake_ps, slotwise.SGD(lr=1.0))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = module

        def forward(self, keys: Tensor) -> Tensor:
            return self.rows(keys * 2).sin().sum()

    explained = torch._dynamo.explain(Model())(torch.tensor([1, 2]))
    assert explained.graph_count == 2, explained  # what is before, and what is behind
    model = getattr(torch, "compile")(Model(), backend="eager")
    model(torch.tensor([1, 2])).backward()
    assert steps_of(fake_ps) == 1


@pytest.mark.skipif(not hasattr(torch, "export"), reason="torch before 2.1 exports nothing")
def test_torch_export_is_refused(fake_ps: slotwise.Client) -> None:
    model = nn.Sequential(zeros(fake_ps, slotwise.SGD(lr=1.0)), nn.Linear(1, 1))
    with pytest.raises(slotwise.FailedPrecondition, match="cannot be traced, scripted or exported"):
        getattr(torch, "export").export(model, (torch.tensor([1, 2]),), strict=False)
