"""A small network, trained by several pods at once, that goes on where it was when its pods are stopped, moved or lost.

PyTorch's DistributedDataParallel (gloo, CPU) where PyTorch is installed; else the same in plain Python over sockets. The data are
made here: every batch follows from its step and its rank, so a step that is repeated after a restart gives the same loss again.

The pod's environment says who it is: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (Gangline sets them in the pods of a GPUJob with
`framework: PyTorch`). Rank 0 writes checkpoints and `losses.jsonl` to `--dir`, which all pods share.

Before a maintenance, rank 0 saves as late as it can (`progress.save_due`): what is stopped then has lost next to nothing.

After SIGTERM all ranks finish the step they are in, rank 0 saves, and all exit with 143: a pod that is stopped has not succeeded.
A step that can't be finished, because a peer is gone, is given up.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from gangline import progress

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None

INPUTS, HIDDEN, BATCH = 4, 12, 16
RATE = 0.05
#: exit status of a program that SIGTERM ended
STOPPED = 143
#: seconds that the other pods get to start; and what rank 0 says when all are there
GATHERING = 1800.0
COMPLETE = b"!"
#: checkpoints that are kept, and what each begins with: the number of steps done
KEPT = 2
HEAD = struct.Struct("!Q")

Batch = list[tuple[list[float], float]]


def batch(step: int, rank: int) -> Batch:
    """Examples of a function that the network has to learn."""
    chance = random.Random(f"{step}/{rank}")
    inputs = [[chance.uniform(-1, 1) for _ in range(INPUTS)] for _ in range(BATCH)]
    return [(x, math.sin(2 * x[0]) + x[1] * x[2] - 0.5 * x[3]) for x in inputs]


# --- ranks ------------------------------------------------------------------------------------------------------------


class Group(Protocol):
    """All ranks. Every method is called by all of them, in the same order."""

    rank: int
    size: int

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks."""
        ...

    def share(self, data: bytes) -> bytes:
        """What rank 0 gives."""
        ...


class SocketGroup:
    """Every rank has a connection to rank 0, which adds up in the order of the ranks. `timeout`: of one exchange, in seconds."""

    def __init__(self, rank: int, size: int, address: str, port: int, timeout: float) -> None:
        self.rank, self.size = rank, size
        self._peers: dict[int, socket.socket] = {}
        if rank:
            self._peers[0] = reached(address, port)
            self._peers[0].sendall(struct.pack("!I", rank))
            self._peers[0].settimeout(GATHERING)
            received(self._peers[0], len(COMPLETE))
        else:
            with socket.create_server(("", port), backlog=size) as server:
                server.settimeout(GATHERING)
                while len(self._peers) < size - 1:
                    peer, _ = server.accept()
                    peer.settimeout(5.0)
                    with contextlib.suppress(OSError):  # something else that looked in
                        (number,) = struct.unpack("!I", received(peer, 4))
                        self._peers[number] = peer
            for peer in self._peers.values():
                peer.sendall(COMPLETE)
        for peer in self._peers.values():
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(timeout)

    def sum(self, values: Sequence[float]) -> list[float]:
        form = f"!{len(values)}d"
        if self.rank:
            self._peers[0].sendall(struct.pack(form, *values))
            return list(struct.unpack(form, received(self._peers[0], struct.calcsize(form))))
        total = list(values)
        for _, peer in sorted(self._peers.items()):
            theirs = struct.unpack(form, received(peer, struct.calcsize(form)))
            total = [a + b for a, b in zip(total, theirs, strict=True)]
        for peer in self._peers.values():
            peer.sendall(struct.pack(form, *total))
        return total

    def share(self, data: bytes) -> bytes:
        if self.rank:
            (length,) = struct.unpack("!I", received(self._peers[0], 4))
            return received(self._peers[0], length)
        for peer in self._peers.values():
            peer.sendall(struct.pack("!I", len(data)) + data)
        return data


class TorchGroup:
    """PyTorch's own process group."""

    def __init__(self, rank: int, size: int, address: str, port: int) -> None:
        self.rank, self.size = rank, size
        if rank:
            reached(address, port).close()
        dist.init_process_group("gloo", rank=rank, world_size=size)

    def sum(self, values: Sequence[float]) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def share(self, data: bytes) -> bytes:
        box = [data]
        dist.broadcast_object_list(box)
        return box[0]


def reached(address: str, port: int) -> socket.socket:
    """A connection to rank 0, which may start later, and on another node than the last time."""
    deadline = time.monotonic() + GATHERING
    while True:
        try:
            return socket.create_connection((address, port), timeout=1.0)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def received(peer: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = peer.recv(length - len(data))
        if not part:
            raise ConnectionError("a peer is gone")
        data += part
    return data


# --- networks ---------------------------------------------------------------------------------------------------------


class Network(Protocol):
    def step(self, examples: Batch) -> float:
        """Learn from all ranks' examples. Returns the loss of this rank's."""
        ...

    def state(self) -> bytes: ...

    def load(self, state: bytes) -> None: ...


class PlainNetwork:
    """One hidden layer, gradient descent."""

    def __init__(self, group: SocketGroup) -> None:
        chance = random.Random(1)
        self._group = group
        self._weights = [chance.gauss(0, 0.5) for _ in range(HIDDEN * (INPUTS + 2) + 1)]

    def step(self, examples: Batch) -> float:
        gradient, loss = [0.0] * len(self._weights), 0.0
        for x, wanted in examples:
            loss += self._learn(x, wanted, gradient)
        scale = RATE / (len(examples) * self._group.size)
        total = self._group.sum(gradient)
        self._weights = [weight - scale * slope for weight, slope in zip(self._weights, total, strict=True)]
        return loss / len(examples)

    def _learn(self, x: list[float], wanted: float, gradient: list[float]) -> float:
        """Add one example's gradient. Returns its loss."""
        weights, each = (
            self._weights,
            INPUTS + 2,
        )  # of a hidden unit: one per input, a bias, and its weight in the output
        units = [weights[i * each : (i + 1) * each] for i in range(HIDDEN)]
        values = [math.tanh(sum(w * v for w, v in zip(unit, x, strict=False)) + unit[INPUTS]) for unit in units]
        error = sum(value * unit[-1] for value, unit in zip(values, units, strict=True)) + weights[-1] - wanted
        for i, (value, unit) in enumerate(zip(values, units, strict=True)):
            back = 2 * error * unit[-1] * (1 - value * value)
            for k in range(INPUTS):
                gradient[i * each + k] += back * x[k]
            gradient[i * each + INPUTS] += back
            gradient[i * each + INPUTS + 1] += 2 * error * value
        gradient[-1] += 2 * error
        return error * error

    def state(self) -> bytes:
        return json.dumps(self._weights).encode()

    def load(self, state: bytes) -> None:
        self._weights = json.loads(state)


class TorchNetwork:
    """The same in PyTorch: DistributedDataParallel averages the gradients."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        torch.set_num_threads(1)
        layers = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
        self._model = torch.nn.parallel.DistributedDataParallel(layers)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=RATE, momentum=0.9)

    def step(self, examples: Batch) -> float:
        inputs = torch.tensor([x for x, _ in examples])
        wanted = torch.tensor([[y] for _, y in examples])
        loss = torch.nn.functional.mse_loss(self._model(inputs), wanted)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def state(self) -> bytes:
        file = io.BytesIO()
        torch.save([self._model.state_dict(), self._optimizer.state_dict()], file)
        return file.getvalue()

    def load(self, state: bytes) -> None:
        model, optimizer = torch.load(io.BytesIO(state), weights_only=True)
        self._model.load_state_dict(model)
        self._optimizer.load_state_dict(optimizer)


# --- files ------------------------------------------------------------------------------------------------------------


class Files:
    """Checkpoints and losses in the shared directory; only rank 0 writes them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._losses = directory / "losses.jsonl"
        lines = self._losses.read_text().splitlines() if self._losses.exists() else []
        self.run = json.loads(lines[-1])["run"] + 1 if lines else 1

    def save(self, step: int, state: bytes) -> None:
        """All of it or nothing: a checkpoint appears under its name when it is complete."""
        path = self._directory / f"step-{step:08}.checkpoint"
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            file.write(HEAD.pack(step) + state)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        for old in self._checkpoints()[:-KEPT]:
            old.unlink()

    def newest(self) -> bytes:
        """The newest checkpoint, b"" if there is none."""
        found = self._checkpoints()
        return found[-1].read_bytes() if found else b""

    def note(self, **facts: Any) -> None:
        line = json.dumps({"run": self.run, **facts})
        print(line, flush=True)
        with self._losses.open("a") as file:
            file.write(f"{line}\n")

    def _checkpoints(self) -> list[Path]:
        return sorted(self._directory.glob("step-*.checkpoint"))


# --- stopping ---------------------------------------------------------------------------------------------------------


class Stop:
    """Whether SIGTERM has come. A thread hears it: Python itself does not while the main thread waits for a peer inside PyTorch.

    The main thread reports what it does by `alive`; where it is stuck, the thread ends the process.
    """

    def __init__(self, slowest: float) -> None:
        self.told = threading.Event()
        self._slowest = slowest  # step, in seconds
        self._alive = time.monotonic()
        ours, signals = socket.socketpair()
        signals.setblocking(False)
        self._kept = signals
        signal.set_wakeup_fd(signals.fileno())
        signal.signal(signal.SIGTERM, lambda *_: None)
        threading.Thread(target=self._hear, args=(ours,), daemon=True).start()

    def alive(self, *, until: float = 0.0) -> None:
        """The main thread goes on; it may be busy for `until` seconds."""
        self._alive = time.monotonic() + until

    def _hear(self, ours: socket.socket) -> None:
        ours.recv(1)
        self.told.set()
        heard = time.monotonic()
        while time.monotonic() < max(heard, self._alive) + self._slowest:
            time.sleep(0.05)
        os._exit(STOPPED)


# --- training ---------------------------------------------------------------------------------------------------------


def steps(first: int, last: int, pace: float) -> Iterator[int]:
    """The numbers of the steps, no faster than one per `pace` seconds."""
    for step in range(first + 1, last + 1):
        began = time.monotonic()
        yield step
        time.sleep(max(0.0, began + pace - time.monotonic()))


def train(group: Group, network: Network, files: Files | None, stop: Stop, given: argparse.Namespace) -> int:
    """Returns the exit status. `files`: those of rank 0."""
    newest = group.share(files.newest() if files else b"")
    done = 0
    if newest:
        (done,) = HEAD.unpack_from(newest)
        network.load(newest[HEAD.size :])
    if files:
        files.note(start=done, backend=type(network).__name__)
    for step in steps(done, given.steps, given.pace):
        stop.alive()
        loss = network.step(batch(step, group.rank))
        total, stops = group.sum([loss, float(stop.told.is_set())])
        progress.report(step, given.steps, metric=total / group.size)
        if files:
            files.note(step=step, loss=total / group.size, time=time.time())
            due = progress.save_due(given.save_within)
            if due:
                files.note(saves=step, by=str(progress.save_by()), time=time.time())
            if due or stops or step == given.steps or step % given.checkpoint_every == 0:
                stop.alive(until=60.0)
                files.save(step, network.state())
        if stops:
            stop.told.wait(5.0)  # a pod that ends before it is told to has failed
            return STOPPED
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="shared by all pods")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--pace", type=float, default=0.2, help="seconds that a step takes at least")
    parser.add_argument(
        "--timeout", type=float, default=1800.0, help="seconds that ranks wait for each other in a step"
    )
    parser.add_argument(
        "--save-within", type=float, default=10.0, help="seconds before an announced end at which rank 0 saves"
    )
    given = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    stop = Stop(slowest=1.0 + 2 * given.pace)
    if torch is not None:
        group: Group = TorchGroup(rank, size, *place)
        network: Network = TorchNetwork()
    else:
        group = SocketGroup(rank, size, *place, given.timeout)
        network = PlainNetwork(group)
    return train(group, network, Files(given.dir) if rank == 0 else None, stop, given)


if __name__ == "__main__":
    sys.exit(main())
