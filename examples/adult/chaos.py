"""Trains DeepFM on UCI Adult twice: in peace, and while ranks of the server are killed; compares the results.

slotwise-launch runs the server with --durability sync and starts it again after each kill. The second
training has to end with the same digest of the table and the same AUC as the first, and neither hears of
an error.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import slotwise

_TABLE = "adult-deepfm"
_TIMEOUT = 60.0  # of the trainer's calls, and of what is waited for here
_RESULT = re.compile(r"^table \S+: (.*), digest ([0-9a-f]{32})$|^test AUC (\S+)$", re.MULTILINE)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launch", required=True, metavar="PROGRAM", help="slotwise-launch")
    parser.add_argument("--server", required=True, metavar="PROGRAM", help="slotwise-server")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=7070)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, help="an epoch ends after so many; all")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, help="of the kills' places (drawn)")
    parser.add_argument("--out", type=Path, default=Path("out/chaos"))
    arguments = parser.parse_args()
    if min(arguments.ranks, arguments.epochs, arguments.kills) < 1:
        parser.error("--ranks, --epochs and --kills are at least 1")
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1 << 32)
    return arguments


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """A child whose output goes to the log."""
    with open(log, "wb") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


class Server:
    """slotwise-launch and its ranks."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.data = arguments.out / "data"
        self._log = arguments.out / "server.log"
        self._server = Path(arguments.server)
        shutil.rmtree(self.data, ignore_errors=True)
        limits = ["--restarts", "1000", "--backoff", "0.1", "--longest-backoff", "1"]
        command = [arguments.launch, "--data", str(self.data), "-n", str(arguments.ranks), *limits, "--"]
        command += [arguments.server, "--listen", f"127.0.0.1:{arguments.port}", "--durability", "sync"]
        self._process = start(command, self._log)

    def starts(self) -> int:
        """How often the ranks have come to serve."""
        if self._process.poll() is not None:
            sys.exit(f"chaos.py: slotwise-launch has ended: see {self._log}")
        return self._log.read_text().count(" launch serving at ")

    def ranks(self) -> list[int]:
        """The ranks' processes, by the id that slotwise-launch gives them."""
        token = (self.data / "launch.id").read_text().strip()
        variable = f"SLOTWISE_LAUNCH_ID={token}:{self.data.resolve()}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                carries = variable in (process / "environ").read_bytes().split(b"\0")
                if carries and (process / "exe").resolve(strict=True).name == self._server.name:
                    found.append(int(process.name))
            except OSError:  # it has ended meanwhile, or is not ours
                continue
        return sorted(found)

    def stop(self) -> int:
        """Lets the ranks finish; slotwise-launch's exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_TIMEOUT)


class Trainer:
    """train.py, as it comes, but patient."""

    def __init__(self, arguments: argparse.Namespace, name: str) -> None:
        self._log = arguments.out / f"{name}.log"
        command = [sys.executable, "-u", str(Path(__file__).with_name("train.py"))]
        command += ["--server", f"127.0.0.1:{arguments.port}", "--epochs", str(arguments.epochs)]
        command += ["--timeout", str(_TIMEOUT), "--out", str(arguments.out / name)]
        command += [] if arguments.batches is None else ["--batches", str(arguments.batches)]
        self._process = start(command, self._log)

    def runs(self) -> bool:
        return self._process.poll() is None

    def result(self) -> list[tuple[str, ...]]:
        """The table's rows, steps and digest, and the AUC, once it has ended."""
        if self._process.wait() != 0:
            sys.exit(f"chaos.py: the trainer failed: {self._log.read_text().strip().splitlines()[-1]}")
        return _RESULT.findall(self._log.read_text())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def steps_done(ps: slotwise.Client) -> int:
    """The table's count of steps; 0 if it is not there."""
    try:
        return ps.describe_table(_TABLE).steps
    except slotwise.NotFound:
        return 0


def await_steps(ps: slotwise.Client, trainer: Trainer, steps: int) -> None:
    """Returns once the table counts so many, or the trainer has ended."""
    while trainer.runs() and steps_done(ps) < steps:
        time.sleep(0.002)


def kill_ranks(
    server: Server, trainer: Trainer, ps: slotwise.Client, steps: int, kills: int, seed: int
) -> list[float]:
    """Kills a rank in each of `kills` equal stretches; the seconds from each kill to the next step."""
    chance = random.Random(seed)
    recoveries: list[float] = []
    for number in range(kills):
        await_steps(ps, trainer, number * steps // kills + chance.randrange(max(1, steps // kills // 2)) + 1)
        if not trainer.runs():
            sys.exit(f"chaos.py: the training ended after {len(recoveries)} kills")
        time.sleep(chance.uniform(0, 0.02))  # anywhere within a step, not at its end
        starts, ranks = server.starts(), server.ranks()
        victim = chance.randrange(len(ranks))
        os.kill(ranks[victim], signal.SIGKILL)
        killed = time.monotonic()
        while trainer.runs() and server.starts() == starts:
            time.sleep(0.002)
        before = steps_done(ps)
        await_steps(ps, trainer, before + 1)
        recoveries.append(time.monotonic() - killed)
        killed_one = f"kill {number + 1}: process {victim} of {len(ranks)} at step {before}"
        print(f"{killed_one}, {recoveries[-1]:.2f} s until the next step", flush=True)
    return recoveries


def main() -> None:
    """Both trainings; exits 1 unless they end alike."""
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"kills by seed {arguments.seed}; logs in {arguments.out}")
    server = Server(arguments)
    trainer = None
    try:
        with slotwise.connect(f"127.0.0.1:{arguments.port}", timeout=_TIMEOUT) as ps:
            trainer = Trainer(arguments, "in-peace")
            peace = trainer.result()
            steps = steps_done(ps)
            print(f"in peace: {peace[0][0]}, digest {peace[0][1]}, AUC {peace[1][2]}", flush=True)
            ps.drop_table(_TABLE)
            trainer = Trainer(arguments, "in-chaos")
            recoveries = kill_ranks(server, trainer, ps, steps, arguments.kills, arguments.seed)
            chaos = trainer.result()
            print(f"in chaos: {chaos[0][0]}, digest {chaos[0][1]}, AUC {chaos[1][2]}")
    finally:
        if trainer is not None:
            trainer.end()
        exit_code = server.stop()
    kills, median, longest = len(recoveries), statistics.median(recoveries), max(recoveries)
    print(f"{kills} kills: recovered in {median:.2f} s at the median, {longest:.2f} s at the longest")
    if chaos != peace or exit_code != 0:
        sys.exit("chaos.py: the two trainings differ, or the server did not end well")
    print("the same digest and the same AUC")


if __name__ == "__main__":
    main()
