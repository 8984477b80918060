"""What a change costs: the same lookups and pushes of the servers of two builds, in turn.

    ./dev python bench/two_builds.py before/slotwise-server after/slotwise-server

Each server is one rank on this machine. Prints medians, and the median and the quartiles of each round's
ratio of the second to the first.
"""

from __future__ import annotations

import argparse

from in_turn import Contender, compare


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first", help="a slotwise-server")
    parser.add_argument("second", help="the other one")
    parser.add_argument("--backend", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--transport", "--door", default="grpc", help="grpc, tcp or shm (default grpc)")
    parser.add_argument("--rounds", type=int, default=201, help="timed rounds of each (default 201)")
    what = "of 26 keys of dim 64 (default 1 and 315)"
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 315], help=what)
    options = parser.parse_args()
    builds = {"the first": options.first, "the second": options.second}
    how, backend = options.transport, options.backend
    contenders = {name: Contender(it, how, backend=backend) for name, it in builds.items()}
    compare(contenders, options.samples, options.rounds)


if __name__ == "__main__":
    main()
