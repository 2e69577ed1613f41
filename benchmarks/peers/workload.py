"""The work every contestant does, and how it is measured.

Imports nothing but PyTorch and NumPy, for it runs in each contestant's own environment. The models
are those of :mod:`eris.models` written down a second time; a test holds them equal.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

Images = NDArray[np.float32]
Labels = NDArray[np.int64]

MIB = 1 << 20


class LeNet5(nn.Module):
    """LeNet-5: 61,706 parameters for grey images of 28 × 28, 62,006 for colour ones of 32 × 32."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(channels, 6, 5, padding=2 if channels == 1 else 0)
        self.c2 = nn.Conv2d(6, 16, 5)
        self.f1 = nn.Linear(400, 120)
        self.f2 = nn.Linear(120, 84)
        self.f3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.c1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.c2(x)), 2)
        x = functional.relu(self.f1(x.flatten(1)))
        logits: torch.Tensor = self.f3(functional.relu(self.f2(x)))
        return logits


class ResNet9(nn.Module):
    """ResNet-9 for 32 × 32 colour images without normalisation, 1,652,682 parameters."""

    def __init__(self) -> None:
        super().__init__()
        widths = [(3, 32), (32, 64), (64, 64), (64, 64), (64, 128), (128, 256), (256, 256)]
        widths.append((256, 256))
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in widths)
        self.full = nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c1, c2, a1, a2, c3, c4, b1, b2 = self.convolutions
        x = functional.max_pool2d(functional.relu(c2(functional.relu(c1(x)))), 2)
        x = x + functional.relu(a2(functional.relu(a1(x))))
        x = functional.max_pool2d(functional.relu(c3(x)), 2)
        x = functional.max_pool2d(functional.relu(c4(x)), 2)
        x = x + functional.relu(b2(functional.relu(b1(x))))
        logits: torch.Tensor = self.full(functional.max_pool2d(x, 2).flatten(1))
        return logits


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "lenet5": LeNet5,
    "lenet5-colour": partial(LeNet5, 3),
    "resnet9": ResNet9,
}


@dataclass(frozen=True)
class Workload:
    """FedAvg: in a round every client, or every one that is sampled, makes ``epochs`` passes over
    its ``samples`` images in steps of SGD on ``batch`` of them.

    LeNet-5 is given random images, which any contestant can make; other data come in ``images``,
    a folder with ``inputs.npy`` and ``targets.npy``, ``samples`` rows a client. With ``sampled``,
    ``clients.npy`` there says who takes part in each round, and ``orders.npy`` in which order each
    of them takes its images: so everyone does the same, and nobody draws.
    """

    model: str = "lenet5"
    epochs: int = 1
    clients: int = 50
    rounds: int = 10
    images: str = ""
    samples: int = 16
    batch: int = 16
    sampled: int = 0
    learning_rate: float = 0.01

    def network(self) -> nn.Module:
        """The model, with the weights everyone starts from."""
        torch.manual_seed(0)
        return NETWORKS[self.model]()

    @property
    def updates(self) -> int:
        """How many clients train in a round."""
        return self.sampled or self.clients

    def taking_part(self, round: int) -> list[int]:
        """The clients of a round, which are counted from 1."""
        if not self.sampled:
            return list(range(self.clients))
        return [int(client) for client in self._stored("clients")[round - 1]]

    def order(self, round: int, place: int) -> Labels:
        """In which order who comes at ``place`` in a round takes its images."""
        if not self.sampled:
            return np.arange(self.samples)
        return np.array(self._stored("orders")[round - 1, place])

    def client_data(self, client: int) -> tuple[Images, Labels]:
        """The images and labels of one client."""
        if self.images:
            rows = slice(self.samples * client, self.samples * (client + 1))
            return self._stored("inputs")[rows], self._stored("targets")[rows]
        draw = np.random.default_rng(1000 + client)
        images = draw.standard_normal((self.samples, 1, 28, 28)).astype(np.float32)
        return images, draw.integers(0, 10, self.samples).astype(np.int64)

    def _stored(self, name: str) -> Any:
        # Only what is looked at is read; PyTorch wants it writable, though nobody writes.
        return np.load(Path(self.images) / f"{name}.npy", mmap_mode="c")

    def everything(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The images and labels of all clients, one after another."""
        if self.images:
            inputs, targets = self._stored("inputs"), self._stored("targets")
            return torch.from_numpy(inputs), torch.from_numpy(targets)
        data = [self.client_data(client) for client in range(self.clients)]
        inputs, targets = (np.concatenate(part) for part in zip(*data, strict=True))
        return torch.from_numpy(inputs), torch.from_numpy(targets)


@dataclass(frozen=True)
class Task:
    """What the benchmark asks of a contestant."""

    workload: Workload
    threads: int
    final: str
    """Where the final weights go, as ``.npy``."""

    def arguments(self) -> list[str]:
        """The task as a command's arguments; ``read_task`` reads them back."""
        return [json.dumps(asdict(self))]


def read_task() -> Task:
    """The task this process was given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", help="a task as JSON")
    given = json.loads(parser.parse_args().task)
    return Task(Workload(**given.pop("workload")), **given)


@dataclass
class Stopwatch:
    """Seconds of each round; what measuring itself costs is left out."""

    rounds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory_mib: float = 0.0
    _started: float = 0.0

    def start(self) -> None:
        """The first round begins."""
        self.cpu.append(usage()[0])
        self._started = time.perf_counter()

    def lap(self) -> None:
        """A round has ended and the next one begins."""
        self.rounds.append(time.perf_counter() - self._started)
        cpu, memory = usage()
        self.cpu.append(cpu)
        self.memory_mib = max(self.memory_mib, memory)
        self._started = time.perf_counter()

    def report(self, name: str, task: Task, weights: Any) -> None:
        """Store the final weights and print the measurements as one line of JSON."""
        vector = np.concatenate([np.asarray(w, np.float32).ravel() for w in weights])
        np.save(task.final, vector)
        later = max(1, len(self.rounds) - 1)
        measured = {
            "contestant": name,
            "threads": task.threads,
            "rounds": self.rounds,
            "cpu_s": (self.cpu[-1] - self.cpu[1]) / later,
            "memory_mib": self.memory_mib,
            "norm": float(np.linalg.norm(vector.astype(np.float64))),
        }
        print(json.dumps(measured), flush=True)


def usage() -> tuple[float, float]:
    """CPU seconds and resident MiB of this process and all its descendants (Linux)."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[float, float]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has just ended
        # The name of the command, in brackets, may itself hold brackets and spaces.
        fields = text.rpartition(")")[2].split()
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
        used[pid] = ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / MIB
    mine, me = {os.getpid()}, os.getpid()
    grown = True
    while grown:
        found = {pid for pid, parent in parents.items() if parent in mine} - mine
        mine |= found
        grown = bool(found)
    used.setdefault(me, (0.0, 0.0))
    return sum(used[pid][0] for pid in mine), sum(used[pid][1] for pid in mine)
