"""Counts of lookups and pushes by a server's ranks (`Client.stats`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest

from slotwise._messages import OlderNames, named


@dataclass(frozen=True)
class Durations:
    """A histogram of calls' durations.

    Attributes:
        sum_ns: of all durations, in nanoseconds.
        buckets: the calls in each bucket of `DurationStats` of admin.proto.
    """

    sum_ns: int = 0
    buckets: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Returns how many durations are counted."""
        return sum(self.buckets)

    def mean(self) -> float:
        """Returns the mean in seconds; 0 if nothing is counted."""
        return self.sum_ns / max(self.count, 1) / 1e9

    def quantile(self, q: float) -> float:
        """Returns the seconds that a share `q` (0 to 1) did not exceed, to within a quarter; 0: no calls."""
        rank, below = q * self.count, 0
        for bucket, here in enumerate(self.buckets):
            if here and below + here >= rank:
                first, end = _first_of(bucket), _first_of(bucket + 1)
                return (first + (end - first) * (rank - below) / here) / 1e9
            below += here
        return 0.0


@dataclass(frozen=True)
class CallStats:
    """Lookups, or pushes; a call of several tables counts as one.

    Attributes:
        calls: the answered calls; `samples` (of each of their tables) and `keys` are theirs.
        bytes_in, bytes_out: of all calls' messages, and of their replies.
        refusals: the refused calls by the code's name; "BUSY" is "RESOURCE_EXHAUSTED" with a time to try
            again. After "BUSY" and "UNAVAILABLE", clients try again.
        latency: of answered calls, from the arrival of their bytes at the rank until their replies were with
            its operating system.
        stages: the same time by consecutive stages: "decode", "inbox", "round", "exchange", "journal",
            "encode" and "send" (explained in admin.proto).
    """

    calls: int
    samples: int
    keys: int
    bytes_in: int
    bytes_out: int
    refusals: dict[str, int]
    latency: Durations
    stages: dict[str, Durations]


@dataclass(frozen=True, kw_only=True)
class RankStats(OlderNames):
    """A rank's counts since it started, and what waits there now.

    Attributes:
        instance: drawn when the server started.
        started: when the rank began to count, in seconds since 1970; `uptime_ns` is how long ago.
        rounds: of all operations that the rank took part in.
        calls_under_way: of all kinds, now.
        queued_requests: those that wait to be proposed to other ranks.
        pending_requests: those that were proposed and have no answer yet.
        queue_bytes: of requests and replies; at most `max_queue_bytes`.
        received_bytes: of calls over the data transport whose requests are not made yet; at most
            `max_received_bytes`.
        shared_bytes: memory that clients on the rank's host share; at most `max_shared_bytes`.
        gpu_shared_bytes: memory of the rank's device that clients on its host share, until their processes
            are gone; at most `max_gpu_shared_bytes`.
        data_connections: of the data transport.
        busy_ns: how long the rank has been at the same round.

    The older names `incarnation`, `inbox_requests`, `announced_requests`, `inbox_bytes`, `max_inbox_bytes`,
    `gpu_arena_bytes` and `max_gpu_arena_bytes` go on working.
    """

    rank: int
    instance: int = named("incarnation")
    started: int
    uptime_ns: int
    lookups: CallStats
    pushes: CallStats
    rounds: int
    calls_under_way: int
    queued_requests: int = named("inbox_requests")
    pending_requests: int = named("announced_requests")
    queue_bytes: int = named("inbox_bytes")
    max_queue_bytes: int = named("max_inbox_bytes")
    received_bytes: int
    max_received_bytes: int
    shared_bytes: int
    max_shared_bytes: int
    gpu_shared_bytes: int = named("gpu_arena_bytes")
    max_gpu_shared_bytes: int = named("max_gpu_arena_bytes")
    data_connections: int
    busy_ns: int

    def since(self, before: RankStats) -> RankStats:
        """Returns the counts after `before`, an earlier reading; all counts if the rank was restarted since.

        `uptime_ns` is the time between the two readings.
        """
        if (before.instance, before.rank) != (self.instance, self.rank):
            return self
        return replace(
            self,
            uptime_ns=self.uptime_ns - before.uptime_ns,
            rounds=self.rounds - before.rounds,
            lookups=_less(self.lookups, before.lookups),
            pushes=_less(self.pushes, before.pushes),
        )


def _first_of(bucket: int) -> int:
    return bucket if bucket < 4 else (4 + bucket % 4) << (bucket // 4 - 1)


def _less_time(now: Durations, before: Durations) -> Durations:
    pairs = zip_longest(now.buckets, before.buckets, fillvalue=0)
    return Durations(now.sum_ns - before.sum_ns, tuple(count - earlier for count, earlier in pairs))


def _less(now: CallStats, before: CallStats) -> CallStats:
    counts = ("calls", "samples", "keys", "bytes_in", "bytes_out")
    return CallStats(
        **{name: getattr(now, name) - getattr(before, name) for name in counts},
        refusals={
            code: n - before.refusals.get(code, 0)
            for code, n in now.refusals.items()
            if n != before.refusals.get(code, 0)
        },
        latency=_less_time(now.latency, before.latency),
        stages={name: _less_time(stage, before.stages[name]) for name, stage in now.stages.items()},
    )
