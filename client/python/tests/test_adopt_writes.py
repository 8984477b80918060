"""No write to an adopted weight goes unnoticed, and no trained row is lost by it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import torch
from fake_server import FakeServer, refuse
from torch import Tensor, nn

import slotwise
import slotwise.torch as st
from slotwise._adopt.weight import as_plain

ROWS, DIM = 12, 3


def make_adopted(ps: slotwise.Client) -> tuple[nn.ModuleDict, torch.optim.Optimizer, Tensor]:
    """A model after a step, whose gradient is there still; its optimizer; the table's rows."""
    torch.manual_seed(5)
    model = nn.ModuleDict({"words": nn.Embedding(ROWS, DIM)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    st.adopt(model, ps, optimizer)
    model["words"](torch.arange(5)).sum().backward()
    optimizer.step()
    return model, optimizer, model.state_dict()["words.weight"]


def write_by_numpy(weight: Tensor) -> None:
    weight.detach().numpy()[2, 1] += 1


def write_where_nothing_is_read(weight: Tensor) -> None:
    with as_plain():
        weight.data.fill_(1)


def exchange_memory(weight: Tensor) -> None:
    with as_plain():
        weight.data = torch.ones(ROWS, DIM)


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "a row of data": lambda weight: weight.data[0].fill_(1),
    "a row set": lambda weight: weight.data.__setitem__(0, 1),
    "zeros in a row": lambda weight: weight.data[0].zero_(),
    "all of data": lambda weight: weight.data.fill_(3),
    "zeros": lambda weight: weight.data.zero_(),
    "by NumPy": write_by_numpy,
    "unread": write_where_nothing_is_read,
    "other memory": exchange_memory,
}


def expect_noticed(
    ps: slotwise.Client,
    model: nn.ModuleDict,
    optimizer: torch.optim.Optimizer,
    message: str,
    by_torch: bool = True,
) -> None:
    """Expects that whatever would use the rows raises, and that the table stays as it is."""
    lookups: list[Callable[[], Any]] = [lambda: model["words"](torch.arange(2))] if by_torch else []
    releases = [lambda: st.release(model), lambda: st.release(model, keep_tables=True)]
    uses = [*lookups, *lookups, optimizer.step, *releases, lambda: model.to("cpu")]  # every time
    for use in uses:
        with pytest.raises(slotwise.FailedPrecondition, match=message):
            use()
    table = ps.describe_table("words")
    assert (table.rows, table.steps) == (ROWS, 1)


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_to_the_weight_is_noticed_and_loses_no_row(fake_ps: slotwise.Client, kind: str) -> None:
    model, optimizer, rows = make_adopted(fake_ps)
    WRITES[kind](model["words"].weight)
    message = "the weight of table words has been written to, but"
    expect_noticed(fake_ps, model, optimizer, message, kind != "by NumPy")
    model.load_state_dict(model.state_dict())  # as the message says
    assert torch.equal(model["words"].weight, rows)
    torch.testing.assert_close(model["words"](torch.arange(ROWS)), rows)
    st.release(model)
    torch.testing.assert_close(model["words"].weight.detach(), rows)


def test_a_gradient_is_not_pushed_for_another_weight(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    model, optimizer, rows = make_adopted(fake_ps)
    pushes = len(fake.requests("Push"))
    weight = nn.Parameter(torch.ones(ROWS, DIM))
    model["words"]._parameters["weight"] = weight
    with pytest.raises(slotwise.FailedPrecondition, match="has got another weight"):
        optimizer.step()
    assert len(fake.requests("Push")) == pushes == 1
    torch.testing.assert_close(model.state_dict()["words.weight"], rows)


def test_another_weight_is_refused_or_noticed_and_loses_no_row(fake_ps: slotwise.Client) -> None:
    model, optimizer, rows = make_adopted(fake_ps)
    module = model["words"]
    weight, other = module.weight, nn.Parameter(torch.ones(ROWS, DIM))
    message = r"table words cannot be replaced: load_state_dict.*release\(\) the model first"
    for replace in (
        lambda: setattr(module, "weight", other),
        lambda: delattr(module, "weight"),
        lambda: nn.utils.parametrize.register_parametrization(module, "weight", nn.Identity()),
    ):
        with pytest.raises(slotwise.FailedPrecondition, match=message):
            replace()
    module.weight = module.weight  # the same one is none other
    module.register_parameter("weight", other)
    expect_noticed(fake_ps, model, optimizer, "a module of table words has got another weight, but")
    model.load_state_dict(model.state_dict())
    assert module.weight is weight
    st.release(model)
    torch.testing.assert_close(module.weight.detach(), rows)
    module.weight = other


def test_a_release_of_several_drops_no_table_before_all_rows_are_there(fake_ps: slotwise.Client) -> None:
    model = nn.ModuleList([nn.Embedding(ROWS, DIM), nn.Embedding(ROWS, DIM)]).requires_grad_(False)
    before = copy.deepcopy(model)
    for number, part in enumerate(model):
        st.adopt(part, fake_ps, prefix=f"part{number}.")
    write_where_nothing_is_read(model[1].weight)
    with pytest.raises(slotwise.FailedPrecondition, match="part1.embedding has been written to"):
        st.release(model)
    assert len(fake_ps.list_tables()) == 2
    torch.testing.assert_close(model.state_dict(), before.state_dict())


def test_a_module_without_rows_takes_part(fake_ps: slotwise.Client) -> None:
    model = nn.Embedding(0, DIM).requires_grad_(False)
    st.adopt(model, fake_ps)
    assert model(torch.zeros(0, dtype=torch.long)).shape == (0, DIM)
    st.release(model)
    assert model.weight.shape == (0, DIM)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.5),
    "adagrad": lambda weights: torch.optim.Adagrad(weights, lr=0.5, initial_accumulator_value=0.3),
    "sparse-adam": lambda weights: torch.optim.SparseAdam(list(weights), lr=0.5),
}


@pytest.fixture
def one_rank() -> Iterator[FakeServer]:
    """Of several, one may log a request after another has refused its part of the same call."""
    with FakeServer(ranks=1) as server:
        yield server


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_model_whose_table_is_gone_can_be_discarded(one_rank: FakeServer, kind: str) -> None:
    theirs = nn.Embedding(ROWS, DIM, sparse=True, _weight=torch.zeros(ROWS, DIM))
    ours = nn.Embedding(ROWS, DIM, sparse=True)
    optimizers = [OPTIMIZERS[kind](module.parameters()) for module in (theirs, ours)]

    def step(module: nn.Embedding, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        module(torch.tensor([1, 4])).cos().add(module(torch.tensor([1, 2]))).sum().backward()
        optimizer.step()

    with slotwise.connect(one_rank.addresses[0], timeout=10.0) as ps:
        st.adopt(ours, ps, optimizers[1])
        step(ours, optimizers[1])
        ps.drop_table("embedding")
        with pytest.raises(slotwise.NotFound):
            st.release(ours)
        requests = len(one_rank.log)
        st.release(ours, discard=True)
        assert len(one_rank.log) == requests
        assert type(ours) is nn.Embedding and not ours.weight.any()
        copy.deepcopy(ours)
        for module, optimizer in zip((theirs, ours), optimizers):  # as a new model is trained
            step(module, optimizer)
        torch.testing.assert_close(ours.weight, theirs.weight)
        st.adopt(ours, ps, optimizers[1])
        torch.testing.assert_close(ours(torch.arange(ROWS)), theirs.weight.detach())


def test_a_model_whose_server_is_gone_can_be_discarded_whatever_was_written(
    fake: FakeServer, fake_ps: slotwise.Client
) -> None:

    model, _, _ = make_adopted(fake_ps)
    model["words"].weight.data.fill_(3)
    model["words"].register_parameter("weight", nn.Parameter(torch.ones(ROWS, DIM)))
    fake.before = refuse("Export", grpc.StatusCode.PERMISSION_DENIED)
    with pytest.raises(slotwise.PermissionDenied):
        model.state_dict()
    fake.stop()
    st.release(model, discard=True)
    assert type(model["words"]) is nn.Embedding and not model["words"].weight.any()
    with pytest.raises(slotwise.InvalidArgument, match="nothing in the model is adopted"):
        st.release(model, discard=True)


def test_a_discarded_table_stays(fake_ps: slotwise.Client) -> None:
    model, _, rows = make_adopted(fake_ps)
    st.release(model, discard=True)
    kept = fake_ps.lookup("words", range(ROWS), train=False)
    torch.testing.assert_close(torch.from_numpy(kept), rows)
