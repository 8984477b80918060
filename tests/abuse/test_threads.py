"""Clients that would have the server begin threads: none has any number of them.

No Slotwise package is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
from abuse_guard import export_request, status
from slotwise_cluster import Cluster, StartCluster, wait_until
from slotwise_wire import CALL_TIMEOUT

REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
WATCH, EXPORT = "/grpc.health.v1.Health/Watch", "/slotwise.v1.Rows/Export"
LIST_SERVICES = b"\x3a\x01*"  # ServerReflectionRequest{list_services: "*"}
STREAMS, CONNECTIONS = 100, 5
MOST_REFLECTIONS = 8
OWN = 8  # threads that gRPC may begin for its own work while it is busy


def threads(cluster: Cluster) -> int:
    return status(cluster.pid(0), "Threads")


@contextmanager
def channels_to(cluster: Cluster) -> Iterator[list[grpc.Channel]]:
    """Channels with a connection each."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as stack:
        made = (grpc.insecure_channel(cluster.ranks[0].address, options=options) for _ in range(CONNECTIONS))
        yield [stack.enter_context(channel) for channel in made]


def test_streams_of_reflection_are_few(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1)
    end = threading.Event()

    def asks_once() -> Iterator[bytes]:
        yield LIST_SERVICES
        end.wait(CALL_TIMEOUT)

    def answers() -> bool:
        call = cluster.ranks[0].channel.stream_stream(REFLECTION)
        try:
            return bool(list(call(iter([LIST_SERVICES]), timeout=CALL_TIMEOUT)))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
            return False

    before = threads(cluster)
    with channels_to(cluster) as channels:
        streams = [channel.stream_stream(REFLECTION)(asks_once()) for channel in channels for _ in range(20)]
        answered = 0
        for stream in streams:
            try:
                next(stream)
                answered += 1
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
                assert error.details() == "the server has 8 streams of reflection, the most at once"
        assert answered == MOST_REFLECTIONS
        assert threads(cluster) <= before + OWN
        end.set()
        for stream in streams:
            stream.cancel()
        wait_until(answers, "reflection, once the streams have ended")


def test_streams_of_other_services_have_no_threads(start_cluster: StartCluster) -> None:
    cluster = start_cluster(1)
    export = export_request(cluster.create(dim=1))
    before = threads(cluster)
    with channels_to(cluster) as channels:
        streams = []
        for channel in channels:
            watches = [channel.unary_stream(WATCH)(b"") for _ in range(STREAMS)]
            streams += watches + [channel.unary_stream(EXPORT)(export) for _ in range(STREAMS)]
            for watch in watches:
                next(watch)
        assert threads(cluster) <= before + OWN
        for stream in streams:
            stream.cancel()
