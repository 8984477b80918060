"""slotwise.torch.save and load: dense weights and the server's rows are one thing, or there is none."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from real_server import serving
from torch import nn

import slotwise
import slotwise.torch as st
from slotwise import _pair, checkpoint_files

_STEPS = 9


class Model(nn.Module):
    """A small model of two tables and a dense layer."""

    def __init__(self, ps: slotwise.Client, session: slotwise.Session | None = None) -> None:
        super().__init__()
        self.embedding = st.EmbeddingBags(ps, ["ads", "words"], session=session)
        self.dense = nn.Linear(8, 1)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        """Returns one number a sample."""
        pooled = self.embedding({"ads": keys, "words": keys % 97})
        return self.dense(torch.cat([pooled["ads"], pooled["words"]], 1))


def make_tables(ps: slotwise.Client) -> None:
    ps.create_table("ads", dim=4, optimizer=slotwise.Adam(lr=0.05))
    ps.create_table("words", dim=4, optimizer=slotwise.AdaGrad(lr=0.05))


def make(ps: slotwise.Client, **options: Any) -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(7)
    model = Model(ps, **options)
    return model, torch.optim.Adam(model.dense.parameters(), lr=0.01)


def step(model: Model, optimizer: torch.optim.Optimizer, *numbers: int) -> None:
    """Trains on the batches of those numbers."""
    for number in numbers:
        keys = torch.randint(0, 1 << 40, (32, 1), generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        model(keys).square().mean().backward()  # pushes
        optimizer.step()


@contextmanager
def trainer(data: Path, **options: Any) -> Iterator[tuple[slotwise.Client, Model, torch.optim.Optimizer]]:
    """A server with the model's tables, and a model."""
    with serving(data=data, **options) as ps:
        make_tables(ps)
        yield (ps, *make(ps))


def state(ps: slotwise.Client, model: Model, optimizer: torch.optim.Optimizer) -> list[Any]:
    """All of the model's bytes."""
    tensors = [*model.state_dict().values()]
    for kept in optimizer.state_dict()["state"].values():
        tensors += [torch.as_tensor(value) for value in kept.values()]
    return [ps.digest("ads"), ps.digest("words"), *(tensor.numpy().tobytes() for tensor in tensors)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The state after the steps of a trainer that nothing happens to."""
    with trainer(tmp_path_factory.mktemp("undisturbed") / "data") as (ps, model, optimizer):
        step(model, optimizer, *range(1, _STEPS + 1))
        return state(ps, model, optimizer)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


def pinned(ps: slotwise.Client) -> list[str]:
    return [checkpoint.id for checkpoint in ps.checkpoints() if checkpoint.pinned]


def test_a_trainer_goes_on_in_another_process_as_if_nothing_had_been(
    tmp_path: Path, path: Path, expected: list[Any]
) -> None:
    with trainer(tmp_path / "data") as (ps, model, optimizer):
        step(model, optimizer, *range(1, 5))
        st.save(path, model, optimizer, {"next": 5, "order": [3, 1], "seen": torch.arange(3)})
        # The same server, and another process of the trainer.
        with slotwise.connect(ps.topology().ranks[1].address) as again:
            model, optimizer = make(again)
            loader = st.load(path, model, optimizer)
            assert loader["next"] == 5 and loader["order"] == [3, 1] and len(loader["seen"]) == 3
            assert again.session.id == ps.session.id and again.describe_session().last_step == 4
            step(model, optimizer, *range(loader["next"], _STEPS + 1))
            assert state(again, model, optimizer) == expected
            assert again.describe_session().last_step == _STEPS


def train_past_a_save(ps: slotwise.Client, path: Path) -> slotwise.Checkpoint:
    """Saves behind step 3, and takes a step more."""
    make_tables(ps)
    model, optimizer = make(ps)
    step(model, optimizer, 1, 2, 3)
    saved = st.save(path, model, optimizer, 4)
    step(model, optimizer, 4)
    return saved


def test_a_server_that_is_further_is_refused_and_brought_back(
    tmp_path: Path, path: Path, expected: list[Any]
) -> None:
    """The trainer is killed between a push and the save that would have had it."""
    with serving(data=tmp_path / "data", durability="sync") as ps:
        saved = train_past_a_save(ps, path)
        session = ps.session.id
        with slotwise.connect(ps.topology().ranks[0].address) as again:
            model, optimizer = make(again)
            untouched = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            with pytest.raises(slotwise.FailedPrecondition) as refused:
                st.load(path, model, optimizer)
        said = str(refused.value)
        assert f"the server's state is not that of {path}: table ads has 4 steps, and in the" in said
        assert f"session {session} was applied up to step 4, and in the checkpoint up to 3" in said
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, untouched[name]), name
    # The message is followed to the letter.
    command = re.search(r"`(python3 -m slotwise.checkpoint_files copy (\S+) NEW)`", said)
    assert command and Path(command[2]).name == saved.id
    words = command[1].replace("python3", sys.executable).replace("NEW", str(tmp_path / "new")).split()
    subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    with serving(data=tmp_path / "new", ranks=1) as ps:
        model, optimizer = make(ps)
        step(model, optimizer, *range(st.load(path, model, optimizer), _STEPS + 1))
        assert state(ps, model, optimizer) == expected


@pytest.mark.parametrize("all_tables", [False, True])
def test_a_server_that_is_further_goes_back_if_it_is_told_to(
    tmp_path: Path, path: Path, expected: list[Any], all_tables: bool
) -> None:
    """The model's own tables go back, and others only if told; the names of steps go with the latter."""
    with serving(data=tmp_path / "data", durability="sync") as ps:
        ps.create_table("others", dim=4, optimizer=slotwise.Adam(lr=0.05))
        train_past_a_save(ps, path)
        gradients = torch.ones((1, 4)).numpy()
        ps.push("others", [7], None, gradients)
        theirs = ps.digest("others")
        with slotwise.connect(ps.topology().ranks[0].address) as again:
            model, optimizer = make(again)
            loader = st.load(path, model, optimizer, go_back=True, all_tables=all_tables)
            assert (ps.digest("others") == theirs) is not all_tables
            step(model, optimizer, *range(loader, _STEPS + 1))
            assert state(again, model, optimizer) == expected
            others = 0 if all_tables else 2  # the step that was taken back, and that of the other table
            assert again.describe_session().last_step == _STEPS + others
        if not all_tables:
            ps.push("others", [7], None, gradients)  # whose trainer hears of nothing


@pytest.mark.parametrize("go_back", [False, True])
def test_trainers_of_one_session_go_on(tmp_path: Path, path: Path, go_back: bool) -> None:
    """Each goes on behind the newest number of the session, whichever of them took the tables back."""
    with serving(data=tmp_path / "data") as ps:
        make_tables(ps)
        session = ps.new_session()
        model, optimizer = make(ps, session=session)
        step(model, optimizer, 1)
        st.save(path, model, optimizer)
        if go_back:
            step(model, optimizer, 2)
        after = state(ps, model, optimizer)
        for _ in range(2 if go_back else 1):
            again = slotwise.Session(session.id, epoch=session.epoch)
            model, optimizer = make(ps, session=again)
            st.load(path, model, optimizer, go_back=go_back)
            step(model, optimizer, 2)
            assert (state(ps, model, optimizer) == after) is go_back
        assert ps.describe_session(session).last_step == (4 if go_back else 2)


def test_a_model_of_another_shape_takes_no_server_back(tmp_path: Path, path: Path) -> None:
    with trainer(tmp_path / "data") as (ps, model, optimizer):
        step(model, optimizer, 1)
        st.save(path, model, optimizer)
        step(model, optimizer, 2)
        before = ps.digest("ads")
        other, other_optimizer = make(ps)
        other.dense = torch.nn.Linear(other.dense.in_features, other.dense.out_features + 1)
        with pytest.raises(slotwise.InvalidArgument, match="does not fit the model: dense"):
            st.load(path, other, other_optimizer, go_back=True)
        model.more = torch.nn.Linear(1, 1)
        with pytest.raises(slotwise.InvalidArgument, match="the model has and the file has not more.bias"):
            st.load(path, model, optimizer, go_back=True)
        assert ps.digest("ads") == before


def test_a_checkpoint_outlives_newer_ones_until_its_file_is_replaced(tmp_path: Path, path: Path) -> None:
    with trainer(tmp_path / "data") as (ps, model, optimizer):
        first = st.save(path, model, optimizer)
        assert pinned(ps) == [first.id]
        for number in range(1, 5):
            step(model, optimizer, number)
            other = st.save(tmp_path / f"other-{number}.pt", model, optimizer)
            ps.release_checkpoint(other.id)
        kept = [checkpoint.id for checkpoint in ps.checkpoints()]
        assert first.id in kept and len(kept) <= 4
        second = st.save(path, model, optimizer)
        assert pinned(ps) == [second.id]
        ps.pin_checkpoint(second.id)  # changes nothing
        ps.release_checkpoint(second.id)
        ps.release_checkpoint(second.id)
        assert pinned(ps) == []
        for call in (ps.pin_checkpoint, ps.release_checkpoint):
            for id in ("nowhere", "../lineage", ""):
                with pytest.raises(slotwise.NotFound, match="there is no checkpoint"):
                    call(id)


def test_a_save_that_fails_leaves_the_file_before(tmp_path: Path, path: Path) -> None:
    with trainer(tmp_path / "data") as (ps, model, optimizer):
        first = st.save(path, model, optimizer, {"next": 1})
        before = path.read_bytes()
        step(model, optimizer, 1)
        unsaved = len(ps.checkpoints())
        with pytest.raises(slotwise.InvalidArgument, match=r"\['loader_state'\]\[0\] is of random.Random"):
            st.save(path, model, optimizer, loader_state=[random.Random(3)])
        assert len(ps.checkpoints()) == unsaved
        with pytest.raises(FileNotFoundError):
            st.save(tmp_path / "nowhere" / "model.pt", model, optimizer)
        assert path.read_bytes() == before and pinned(ps) == [first.id]
        assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_push_amid_a_save_is_noticed(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trainer(tmp_path / "data") as (ps, model, optimizer):
        save = ps.save

        def save_and_push(**options: Any) -> slotwise.Checkpoint:
            made = save(**options)
            step(model, optimizer, 1)
            return made

        monkeypatch.setattr(ps, "save", save_and_push)
        with pytest.raises(slotwise.FailedPrecondition, match="step 1 of session .* was applied while"):
            st.save(path, model, optimizer)
        assert not path.exists() and pinned(ps) == []


def test_another_server_is_refused(tmp_path: Path, path: Path) -> None:
    with trainer(tmp_path / "data", ranks=1) as (_, model, optimizer):
        saved = st.save(path, model, optimizer)
    with trainer(tmp_path / "other", ranks=1) as (_, model, optimizer):
        with pytest.raises(slotwise.FailedPrecondition) as refused:
            st.load(path, model, optimizer)
    assert f"the server has no checkpoint {saved.id}" in str(refused.value)
    words = r"table ads is of generation \w{16}, and in the checkpoint of \w{16}"
    assert re.search(words, str(refused.value))


def test_damaged_and_foreign_files_are_refused(tmp_path: Path, path: Path) -> None:
    with trainer(tmp_path / "data", ranks=1) as (_, model, optimizer):
        st.save(path, model, optimizer)
        whole = path.read_bytes()
        for damaged in (b"", whole[:100], whole[: len(whole) // 2], b"x" * 1000):
            path.write_bytes(damaged)
            with pytest.raises(slotwise.DataLoss, match="model.pt"):
                st.load(path, model, optimizer)
        place = whole.index(model.dense.weight.detach().numpy().tobytes())
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(slotwise.DataLoss, match="not what was written"):
            st.load(path, model, optimizer)
        torch.save({"model": model.state_dict()}, path)
        with pytest.raises(slotwise.DataLoss, match="no file of slotwise.torch.save"):
            st.load(path, model, optimizer)
        path.write_bytes(whole)
        with pytest.raises(slotwise.InvalidArgument, match="the states of 1 optimizers, not 0"):
            st.load(path, model)
        with pytest.raises(FileNotFoundError):
            st.load(tmp_path / "none.pt", model, optimizer)
        with pytest.raises(slotwise.InvalidArgument, match="no module of slotwise.torch"):
            st.save(path, nn.Linear(1, 1))
        st.load(path, model, optimizer)


def test_reading_a_file_runs_nothing_of_its(tmp_path: Path, path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "harm"),)

    torch.save({"format": "slotwise.torch 1", "values": "1", "tensors": [Harm()]}, path)
    with pytest.raises(slotwise.DataLoss):
        _pair.read(path)
    assert not (tmp_path / "harm").exists()


def test_a_copy_of_a_chain_is_a_data_folder(tmp_path: Path) -> None:
    with trainer(tmp_path / "data") as (ps, model, optimizer):
        base = st.save(tmp_path / "base.pt", model, optimizer)
        step(model, optimizer, 1)
        delta = st.save(tmp_path / "delta.pt", model, optimizer, delta=True)
        assert delta.delta
        folder = ps.describe_checkpoint(delta.id).folder
        digest = ps.digest("ads")
        assert checkpoint_files.copy(folder, tmp_path / "copy") == [base.id, delta.id]
        with pytest.raises(slotwise.InvalidArgument, match="is not empty"):
            checkpoint_files.copy(folder, tmp_path / "copy")
    with serving(data=tmp_path / "copy", ranks=1) as ps:
        assert ps.digest("ads") == digest
