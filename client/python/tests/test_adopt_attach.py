"""Adopted models that come back to their tables: after a kill, and in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import adopted_trainer
import grpc
import numpy as np
import pytest
import torch
from fake_server import FakeServer, refuse
from judged_times import LONG_FORMS
from real_server import RealServer, empty_client, serving
from torch import nn

import slotwise
import slotwise.torch as st

ROWS, DIM = 12, 3


def make(rows: int = ROWS, dim: int = DIM, mode: str = "sum", seed: int = 1) -> nn.EmbeddingBag:
    torch.manual_seed(seed)
    return nn.EmbeddingBag(rows, dim, mode=mode)


def adopt(ps: slotwise.Client, module: nn.Module, **optimizer: Any) -> torch.optim.Optimizer:
    made = torch.optim.Adagrad(module.parameters(), **{"lr": 0.1, **optimizer})
    st.adopt(module, ps, made, attach=True)
    return made


def step(module: nn.Module, optimizer: torch.optim.Optimizer, number: int = 0) -> None:
    optimizer.zero_grad()
    module(torch.arange(number, number + 4).reshape(2, 2)).cos().sum().backward()
    optimizer.step()


def test_a_table_that_is_there_goes_on_with_its_rows_and_state(ps: slotwise.Client) -> None:
    alone = make()
    rows = torch.optim.Adagrad(alone.parameters(), lr=0.1)
    for number in range(6):
        step(alone, rows, number)
    for begin in (0, 3):  # the second trainer's own values do not count
        ours = make(seed=begin + 1)
        optimizer = adopt(ps, ours)
        for number in range(begin, begin + 3):
            step(ours, optimizer, number)
    torch.testing.assert_close(ours.weight, alone.weight)
    assert ps.describe_table("embedding").steps == 6
    (state,) = optimizer.state_dict()["state"].values()
    torch.testing.assert_close(state["sum"], rows.state[alone.weight]["sum"])
    assert int(state["step"]) == 6
    st.release(ours)
    torch.testing.assert_close(ours.weight, alone.weight)


def test_a_rate_that_was_moved_is_the_next_steps(fake_ps: slotwise.Client) -> None:
    alone = make()
    rows = torch.optim.Adagrad(alone.parameters(), lr=0.1)
    ours = make()
    step(ours, adopt(fake_ps, ours))
    step(alone, rows)
    again = make()
    optimizer = adopt(fake_ps, again, lr=0.7)
    rows.param_groups[0]["lr"] = 0.7
    step(again, optimizer)
    step(alone, rows)
    torch.testing.assert_close(again.weight, alone.weight)


@pytest.mark.parametrize(
    "weight, optimizer, message",
    [
        ({"dim": 4}, {}, "dim of table embedding is 3, and the model wants 4"),
        ({"mode": "mean"}, {}, "combiner of table embedding is sum, and the model wants mean"),
        ({"rows": 13}, {}, "table embedding has 12 of the weight's 13 rows"),
        ({}, {"initial_accumulator_value": 0.25}, "optimizer of table embedding is AdaGrad.*0.25"),
    ],
    ids=["dim", "mode", "rows", "optimizer"],
)
def test_a_table_of_another_weight_or_optimizer_is_refused(
    fake_ps: slotwise.Client, weight: dict[str, Any], optimizer: dict[str, Any], message: str
) -> None:
    first = make()
    made = adopt(fake_ps, first)
    with pytest.raises(slotwise.InvalidArgument, match="is adopted already: release.. it first"):
        st.adopt(first, fake_ps, made)
    module = make(**weight)
    with pytest.raises(slotwise.FailedPrecondition, match=message):
        adopt(fake_ps, module, **optimizer)
    assert type(module) is nn.EmbeddingBag and fake_ps.describe_table("embedding").rows == ROWS
    module = make()
    with pytest.raises(slotwise.FailedPrecondition, match="is AdaGrad.*, and the model wants SGD"):
        st.adopt(module, fake_ps, torch.optim.SGD(module.parameters(), lr=0.1), attach=True)
    st.adopt(make().requires_grad_(False), fake_ps, attach=True)  # whose optimizer never runs
    adopt(fake_ps, make(rows=11))  # whose ids are all there


def test_missing_tables_are_made_and_others_stay(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    models = [nn.ModuleDict({"a": make(), "b": make(seed=2)}) for _ in range(2)]
    first = torch.optim.SGD(models[0]["a"].parameters(), lr=0.1)
    st.adopt(models[0]["a"], fake_ps, first, names={"": "a"})
    imports = len(fake.requests("Import"))
    both = torch.optim.SGD(models[1].parameters(), lr=0.1)
    assert st.adopt(models[1], fake_ps, both, attach=True) == {"a": "a", "b": "b"}
    assert len(fake.requests("Import")) - imports == 1  # of one table
    with pytest.raises(slotwise.AlreadyExists, match="there is a table a already: adopt.attach=True"):
        st.adopt(make().requires_grad_(False), fake_ps, names={"": "a"})


def test_a_failed_adoption_drops_no_table_that_was_there(fake: FakeServer, fake_ps: slotwise.Client) -> None:
    model = nn.ModuleDict({"a": make(), "b": make(seed=2)})
    st.adopt(model["a"], fake_ps, torch.optim.SGD(model["a"].parameters(), lr=0.1), names={"": "a"})
    other = nn.ModuleDict({"a": make(), "b": make(seed=2), "c": make(seed=3)})

    denied = grpc.StatusCode.PERMISSION_DENIED
    fake.before = refuse("CreateTable", denied, of=lambda _, request: request.options.name == "c")
    with pytest.raises(slotwise.PermissionDenied):
        st.adopt(other, fake_ps, torch.optim.SGD(other.parameters(), lr=0.1), attach=True)
    assert [table.name for table in fake_ps.list_tables()] == ["a"]
    assert fake_ps.describe_table("a").rows == ROWS


def test_names_are_made_legal_or_given(fake_ps: slotwise.Client) -> None:
    model = nn.ModuleDict({"a b": make(), "ä/": make(seed=2), "plain": make(seed=3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tables = st.adopt(model, fake_ps, optimizer, prefix="clicks/", names={"plain": "whole.name"})
    assert tables == {"a b": "clicks/a_b", "ä/": "clicks/_/_", "plain": "whole.name"}
    st.release(model)
    with pytest.raises(slotwise.InvalidArgument, match="names: there is no embedding 'other' in the model"):
        st.adopt(model, fake_ps, optimizer, names={"other": "x"})
    with pytest.raises(slotwise.InvalidArgument, match="two weights would both be the table x"):
        st.adopt(model, fake_ps, optimizer, names={"a b": "x", "plain": "x"})
    shared = nn.ModuleList([make(), make()])
    shared[1].weight = shared[0].weight
    with pytest.raises(slotwise.InvalidArgument, match="names: x and y are of one weight"):
        st.adopt(shared.requires_grad_(False), fake_ps, names={"0": "x", "1": "y"})
    assert fake_ps.list_tables() == []


def test_a_table_is_left_to_native_modules(real: RealServer) -> None:
    with empty_client(real) as ps:
        ours = make()
        optimizer = adopt(ps, ours)
        step(ours, optimizer)
        st.release(ours, keep_tables=True)
        native = st.EmbeddingBag(ps, "embedding").eval()
        torch.testing.assert_close(native(torch.arange(4).reshape(2, 2)), ours(torch.arange(4).reshape(2, 2)))
        assert ps.describe_table("embedding").steps == 1


def run(address: str, file: Path, steps: int, kill_behind: int | None = None) -> list[str]:
    """Runs the trainer; kills it when it has made a step. Returns what it printed."""
    command = [sys.executable, adopted_trainer.__file__, address, str(file), str(steps)]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.strip())
            if said[-1] == str(kill_behind):
                process.kill()
                return said
        assert process.wait() == 0, said
    return said


@pytest.mark.parametrize("ranks", [1, 2] if LONG_FORMS else [2])
def test_a_trainer_that_was_killed_ends_where_it_would_have(tmp_path: Path, ranks: int) -> None:
    steps, results = 14, []
    for name, kills in (("peace", []), ("killed", [2, 6, 13] if LONG_FORMS else [2, 13])):
        with slotwise.serve(ranks, threads=1, data=tmp_path / name) as server:
            for kill in kills:
                assert run(server.address, tmp_path / f"{name}.pt", steps, kill)[-1] == str(kill)
            dense = run(server.address, tmp_path / f"{name}.pt", steps)[-1]
            with slotwise.connect(server.address) as ps:
                tables = sorted(table.name for table in ps.list_tables())
                results.append((dense, [(table, ps.digest(table).digest) for table in tables]))
    assert results[0][1][0][0] == "killed/items" and results[1] == results[0]
    content = torch.load(tmp_path / "peace.pt", weights_only=True)
    floats = sum(each.numel() for each in content["tensors"])
    assert floats < 100  # the dense layer and its optimizer's state, and no row


def test_what_is_saved_has_no_rows_and_comes_back(tmp_path: Path) -> None:
    with serving(data=tmp_path / "data") as ps:
        model, optimizer = adopted_trainer.make(ps)
        # A layer that has a table's weight.
        model.scores = nn.Linear(adopted_trainer.DIM, adopted_trainer.ITEMS)
        model.scores.weight = model.items.weight
        adopted_trainer.train(model, optimizer, 0)
        st.save(tmp_path / "model.pt", model, optimizer, "here")
        before = {name: value.clone() for name, value in model.state_dict().items()}
        adopted_trainer.train(model, optimizer, 1)
        with pytest.raises(slotwise.FailedPrecondition, match="steps, and in the checkpoint"):
            st.load(tmp_path / "model.pt", model, optimizer)
        assert st.load(tmp_path / "model.pt", model, optimizer, go_back=True) == "here"
        for name, value in model.state_dict().items():
            assert np.array_equal(value.numpy(), before[name].numpy()), name
        assert "scores.weight" in before and "items.weight" in before
