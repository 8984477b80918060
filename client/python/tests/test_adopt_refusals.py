"""A model is adopted whole or not at all, and what cannot be adopted is named."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import pytest
import torch
from fake_server import FakeServer, refuse
from real_server import RealServer, empty_client
from torch import Tensor, nn

import slotwise
import slotwise.torch as st


class OwnEmbedding(nn.Embedding):
    """Somebody's own class."""

    def forward(self, input: Tensor) -> Tensor:
        """Is not torch's."""
        return super().forward(input).tanh()


class OwnParameter(nn.Parameter):
    """Somebody's own class."""


Change = Callable[[nn.Module, nn.Module], object]


def with_module(module: nn.Module, change: Change = lambda fine, odd: None) -> nn.Module:
    """A model in which another embedding, that could be adopted, comes first; what it does to both."""
    model = nn.ModuleDict({"fine": nn.Embedding(5, 2), "odd": module})
    change(model["fine"], model["odd"])
    return model


def embedding(**options: Any) -> nn.Embedding:
    return nn.Embedding(5, 2, **options)


def share(fine: nn.Module, odd: nn.Module) -> None:
    odd.weight = nn.Parameter(fine.weight.detach())


def share_a_part(fine: nn.Module, odd: nn.Module) -> None:
    both = torch.ones(9, 2)
    fine.weight, odd.weight = nn.Parameter(both[:5]), nn.Parameter(both[4:])


def with_buffer(fine: nn.Module, odd: nn.Module) -> None:
    odd.register_buffer("kept", fine.weight.data[1])


def with_own_parameter(_: nn.Module, odd: nn.Module) -> None:
    odd.weight = OwnParameter(torch.ones(5, 2))


SHARES = r"fine: its weight shares memory with odd\."
FREQUENCY, NAN = "odd: scale_grad_by_freq is True", torch.full((5, 2), float("nan"))
DERIVED = "odd: its class is OwnEmbedding, which changes forward of torch's, so the model is not adopted"
MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "max": (lambda: with_module(nn.EmbeddingBag(5, 2, mode="max")), "odd: mode is 'max', .* sum and mean"),
    "max_norm": (lambda: with_module(embedding(max_norm=1.0)), "odd: max_norm is 1.0"),
    "scale_grad_by_freq": (lambda: with_module(embedding(scale_grad_by_freq=True)), FREQUENCY),
    "float64": (lambda: with_module(embedding().double()), "odd: its weight is .*float64"),
    "meta": (lambda: with_module(embedding(device="meta")), "odd: .* device meta"),
    "derived": (lambda: with_module(OwnEmbedding(5, 2)), DERIVED),
    "memory": (lambda: with_module(embedding(), share), SHARES + "weight, which is another tensor"),
    "memory of a layer": (lambda: with_module(nn.Linear(2, 5, bias=False), share), SHARES + "weight"),
    "part of memory": (lambda: with_module(embedding(), share_a_part), SHARES + "weight"),
    "memory of a buffer": (lambda: with_module(embedding(), with_buffer), SHARES + "kept"),
    "parameter": (lambda: with_module(embedding(), with_own_parameter), "weight is a OwnParameter, and no"),
    "weight_norm": (lambda: with_module(nn.utils.weight_norm(embedding())), "is not its one parameter"),
    "parallel": (lambda: nn.DataParallel(embedding()), "the model is a DataParallel"),
    "none": (lambda: nn.Linear(2, 2), "the model has no nn.Embedding or nn.EmbeddingBag"),
    "nan": (lambda: with_module(nn.Embedding.from_pretrained(NAN)), "nan|NaN|finite"),
    "name": (lambda: nn.ModuleDict({"a" * 256: embedding()}), "name is .*aaa"),
}

Weights = Iterable[Tensor]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> torch.optim.Optimizer:
    """A rate that torch's constructor would refuse, as a loop can write it."""
    optimizer.param_groups[0]["lr"] = rate
    return optimizer


LAZY = r"fine: torch.optim.Adam moves rows .*: adopt\(model, ps, optimizer, lazy=True\)"
MOVES = "momentum of torch.optim.SGD is 0.9, not 0, and momentum moves rows that a step does not"
NEGATIVE = "lr of torch.optim.SGD is -0.5, not 0 or above"
SETTINGS: dict[str, tuple[Callable[[Weights], Any], str]] = {
    "adam": (torch.optim.Adam, LAZY),
    "adamw": (torch.optim.AdamW, "fine: torch.optim.AdamW moves rows .* lazy=True"),
    "rmsprop": (torch.optim.RMSprop, "no table's optimizer equals torch.optim.RMSprop.*SGD without"),
    "momentum": (lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9), MOVES),
    "decay": (lambda w: torch.optim.SGD(w, lr=0.1, weight_decay=0.1), "decay .* 0.1, moves .* lazy=True"),
    "maximize": (lambda w: torch.optim.SGD(w, lr=0.1, maximize=True), "maximize .* is True"),
    "adagrad decay": (lambda w: torch.optim.Adagrad(w, weight_decay=0.1), "weight_decay"),
    "lr_decay": (lambda w: torch.optim.Adagrad(w, lr_decay=0.1), "lr_decay .* is 0.1, not 0"),
    "eps": (lambda w: torch.optim.Adagrad(w, eps=0.0), "eps of torch.optim.Adagrad is 0"),
    "dense": (torch.optim.SparseAdam, "fine: torch.optim.SparseAdam wants sparse=True"),
    "negative": (lambda w: set_rate(torch.optim.SGD(w, lr=1.0), -0.5), NEGATIVE),
    "nan": (lambda w: set_rate(torch.optim.Adagrad(w), float("nan")), "lr of .* is nan"),
    "infinity": (lambda w: torch.optim.Adagrad(w, lr=float("inf")), "lr of .* is inf"),
    "none": (lambda w: None, "fine: its weight requires a gradient, but no optimizer"),
    "another": (lambda w: torch.optim.SGD([torch.zeros(1)], lr=1.0), "fine: .* but no optimizer"),
    "twice": (lambda w: [torch.optim.SGD(w, lr=1.0)] * 2, "fine: 2 groups of optimizers have"),
}


def snapshot(model: nn.Module) -> dict[str, Any]:
    return {
        "classes": [type(module) for module in model.modules()],
        "weights": [(id(p), p.data_ptr()) for p in model.parameters()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
    }


def expect_refused(
    ps: slotwise.Client, model: nn.Module, optimizer: Any, message: str, error: Any = None
) -> None:
    """Expects an error, and that neither model nor optimizer nor server has changed."""
    model_before, tables_before = snapshot(model), ps.list_tables()
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else optimizer or []
    attributes = [sorted(vars(one)) for one in optimizers]
    with pytest.raises(error or slotwise.InvalidArgument, match=message):
        st.adopt(model, ps, optimizer)
    assert snapshot(model) == model_before and ps.list_tables() == tables_before
    assert [sorted(vars(one)) for one in optimizers] == attributes


def make(odd: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = with_module(odd)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("build, message", MODELS.values(), ids=MODELS)
def test_what_the_server_cannot_hold_is_refused(real: RealServer, build: Any, message: str) -> None:
    model = build()
    with empty_client(real) as ps:
        expect_refused(ps, model, torch.optim.SGD(model.parameters(), lr=0.1), message)


@pytest.mark.parametrize("optimize, message", SETTINGS.values(), ids=SETTINGS)
def test_an_optimizer_of_no_table_is_refused(fake_ps: slotwise.Client, optimize: Any, message: str) -> None:
    model = with_module(nn.EmbeddingBag(5, 2, sparse=True))
    expect_refused(fake_ps, model, optimize(model.parameters()), message)


def test_a_table_that_exists_is_never_written_to(fake_ps: slotwise.Client) -> None:
    fake_ps.create_table("odd", dim=2, optimizer=slotwise.SGD(0.1))
    model, optimizer = make(embedding())
    message = "there is a table odd already: adopt.attach=True. goes on .* or drop the table, or give"
    expect_refused(fake_ps, model, optimizer, message, slotwise.AlreadyExists)
    assert fake_ps.describe_table("odd").rows == 0


def test_a_server_that_fails_in_the_middle_is_cleared(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    fake.before = refuse("Import", exhausted, "no room", of=lambda _, request: request.table == "odd")
    model, optimizer = make(embedding())
    expect_refused(fake_ps, model, optimizer, "no room", slotwise.ResourceExhausted)


def test_a_table_that_others_make_meanwhile_is_left_alone(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    def make_it_first(_rank: int, method: str, request: Any) -> None:
        if method == "CreateTable" and request.options.name == "odd":
            fake.before = lambda *_: None
            with slotwise.connect(fake.addresses[1]) as other:
                other.create_table("odd", dim=7, optimizer=slotwise.SGD(0.1))

    fake.before = make_it_first
    model, optimizer = make(embedding())
    with pytest.raises(slotwise.AlreadyExists):
        st.adopt(model, fake_ps, optimizer)
    assert [(table.name, table.dim) for table in fake_ps.list_tables()] == [("odd", 7)]


def test_a_release_that_fails_leaves_the_model_adopted(fake_ps: slotwise.Client) -> None:
    model = with_module(nn.Embedding(5, 2))
    rows = copy.deepcopy(model["fine"].weight)
    st.adopt(model, fake_ps, torch.optim.SGD(model.parameters(), lr=0.1))
    kept = next(fake_ps.export_rows("odd", [3]))
    fake_ps.erase("odd", [3])
    message = "1 of the rows that table odd holds for its weight have been erased"
    for use in (lambda: st.release(model), model.state_dict, lambda: copy.deepcopy(model)):
        with pytest.raises(slotwise.FailedPrecondition, match=message):
            use()
    torch.testing.assert_close(model["fine"](torch.arange(5)), rows)
    with pytest.raises(slotwise.FailedPrecondition, match="1 of the rows that table odd"):
        model.load_state_dict({"fine.weight": rows, "odd.weight": rows})
    fake_ps.import_rows("odd", kept.keys, kept.values)
    fake_ps.import_rows("odd", [77], kept.values)  # a key that is no index is no weight's
    st.release(model, keep_tables=True)
    torch.testing.assert_close(model["fine"].weight, rows)
    assert fake_ps.describe_table("odd").rows == 6


def test_what_is_not_adopted_is_not_released(fake_ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.InvalidArgument, match="nothing in the model is adopted"):
        st.release(nn.Embedding(5, 2))
