"""Trainers in step share a session in one line, and train as torch's DistributedDataParallel does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import shared_trainer
import trainers as trainers_of
from fake_server import FakeServer
from judged_times import LONG_FORMS
from real_server import RealServer, StartReal, empty_client
from waiting import wait_until

import slotwise
import slotwise.torch as st

pytestmark = trainers_of.needs_gloo


SMALL = [("plain", 1, 2), ("one has none", 1, 2), ("in_flight", 2, 3)]
LARGE = [("plain", 2, 3), ("one has none", 2, 3), ("in_flight", 1, 2)]


@pytest.mark.parametrize("kind, ranks, trainers", SMALL + LARGE if LONG_FORMS else SMALL)
def test_trainers_with_a_mean_loss_train_as_torchs(
    start_real: StartReal, tmp_path: Path, kind: str, ranks: int, trainers: int
) -> None:
    with empty_client(start_real(ranks)) as ps:
        shared_trainer.make_tables(ps)
        address = ps.topology().ranks[-1].address
        trainers_of.run(tmp_path, shared_trainer.__file__, trainers, address, kind)


def test_trainers_agree_on_parts_where_a_share_is_larger_than_a_message(tmp_path: Path) -> None:
    server = RealServer(1, "limits { max_message_mib: 1 }")
    with slotwise.connect(server.address, timeout=60) as ps:
        ps.create_table("wide", dim=512, optimizer=slotwise.SGD(0.1))
    trainers_of.run(tmp_path, shared_trainer.__file__, 2, server.address, "large")
    assert server.stop() == 0


def test_without_a_process_group_it_is_refused(fake_ps: slotwise.Client) -> None:
    with pytest.raises(slotwise.FailedPrecondition, match="init_process_group"):
        st.shared_session(fake_ps)


class TestMean:
    KEYS, ONES = np.array([1, 2]), np.ones((2, 4), np.float32)

    @pytest.mark.parametrize("gradients, pushed", [("mean", 0.25), ("sum", 1.0)])
    def test_gradients_are_divided_before_they_are_sent(
        self, fake: FakeServer, fake_ps: slotwise.Client, gradients: str, pushed: float
    ) -> None:
        fake_ps.create_table("ads", dim=4, optimizer=slotwise.SGD(1.0))
        alone = slotwise.Session(5, trainers=1, gradients=gradients)
        shared = slotwise.Session(6, trainer=1, trainers=4, gradients=gradients)
        assert (alone.divisor, shared.divisor) == (1, 4 if gradients == "mean" else 1)
        fake_ps.push_async("ads", self.KEYS, None, self.ONES, step=shared.next())
        wait_until(lambda: len(fake.requests("Push")) == 1, "the push")
        (request,) = fake.requests("Push")
        assert set(np.frombuffer(request.gradients, np.float32)) == {pushed}
        fake_ps.push("ads", self.KEYS, None, self.ONES, step=alone.next())
        assert fake_ps.lookup("ads", self.KEYS, train=False).min() < -0.9, "a lone trainer divides by 1"

    def test_other_words_are_refused(self) -> None:
        with pytest.raises(slotwise.InvalidArgument, match="gradients is 'max', not \"sum\" or \"mean\""):
            slotwise.Session(gradients="max")
