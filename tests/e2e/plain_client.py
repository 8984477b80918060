"""A Slotwise client as anyone would write it from the .proto files, with what protoc generated from them.

Run by test_plain_client.py as a program of its own: plain_client.py HOST:PORT. Trains one step and checks it.
"""

import array
import sys

import grpc
from slotwise.v1 import admin_pb2, admin_pb2_grpc, embedding_pb2, embedding_pb2_grpc


def main() -> None:
    """Makes a table, looks two samples up, pushes their gradient, looks again."""
    channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_http_proxy", 0)])
    admin = admin_pb2_grpc.AdminStub(channel)
    embedding = embedding_pb2_grpc.EmbeddingStub(channel)

    options = admin_pb2.TableOptions(name="plain", dim=2, optimizer=admin_pb2.Optimizer(learning_rate=0.5))
    options.optimizer.sgd.SetInParent()
    admin.CreateTable(admin_pb2.CreateTableRequest(options=options), timeout=60)

    keys = array.array("Q", [10, 20]).tobytes()
    lookup = embedding_pb2.LookupRequest(table="plain", samples=2, keys=keys)
    before = array.array("f", embedding.Lookup(lookup, timeout=60).values)
    gradients = array.array("f", [1, 2, 3, 4])
    step = embedding_pb2.StepId(session=1, number=1)
    push = embedding_pb2.PushRequest(
        table="plain", step=step, samples=2, keys=keys, gradients=gradients.tobytes()
    )
    assert embedding.Push(push, timeout=60).table_step == 1
    after = array.array("f", embedding.Lookup(lookup, timeout=60).values)

    expected = [value - 0.5 * gradient for value, gradient in zip(before, gradients)]
    assert list(after) == list(array.array("f", expected)), (before, after)
    assert admin.Digest(admin_pb2.DigestRequest(table="plain"), timeout=60).steps == 1
    print("trained")


if __name__ == "__main__":
    main()
