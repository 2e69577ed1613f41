"""Five cinemas train one classifier of film reviews; nobody's reviews or whole updates leave home.

A pre-trained text encoder (MiniLM) on real reviews (IMDB), by ERIS. It needs the extra
``transformers`` and two downloads: ``eris data fetch imdb`` and ``eris data fetch minilm``. Run it
with ``python examples/imdb_text.py``; it takes some minutes on one core.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

import eris
from eris.data import iid, load_imdb
from eris.data.weights import Weights, load_minilm
from eris.models import create
from eris.models.text import tokenise
from eris.training.torch import evaluate, flatten, single_threaded, torch_clients

SEED, CLIENTS, SAMPLES, TESTED, LENGTH, ROUNDS, STEP = 0, 5, 64, 200, 64, 6, 5e-5


def packed(
    weights: Weights, texts: list[str], labels: NDArray[np.uint8], places: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels of the chosen reviews."""
    tokens = tokenise(weights.folder, [texts[place] for place in places], LENGTH)
    return tokens, torch.from_numpy(labels[places].astype(np.int64))


def main() -> None:
    """Deal out reviews, train by ERIS, and say what ran on what."""
    reviews, weights = load_imdb(), load_minilm()
    model = create("minilm", seed=SEED, path=weights.folder)
    start = flatten(model)
    print(f"data:  {reviews.source}")
    print(f"model: minilm, {len(start):,} parameters; {weights.source}")
    print(
        f"seed {SEED}; {CLIENTS} clients with {SAMPLES} reviews each, cut to {LENGTH} tokens; "
        f"tested on {TESTED} others; {ROUNDS} rounds of two epochs, AdamW {STEP}"
    )

    dealt = np.concatenate(iid(reviews.train_labels, CLIENTS, SAMPLES, SEED))
    (held,) = iid(reviews.test_labels, 1, TESTED, SEED)
    tokens, labels = packed(weights, reviews.train_texts, reviews.train_labels, dealt)
    test_tokens, test_labels = packed(weights, reviews.test_texts, reviews.test_labels, held)
    parts = [np.arange(SAMPLES) + SAMPLES * client for client in range(CLIENTS)]
    clients = torch_clients(
        model, tokens, labels, parts,
        learning_rate=STEP, optimiser="adamw", epochs=2, batch_size=16, seed=SEED,
    )  # fmt: skip

    def tested(parameters: NDArray[np.float32]) -> dict[str, float]:
        found = evaluate(model, parameters, test_tokens, test_labels, batch_size=50)
        return {"accuracy": found["accuracy"]}

    rule = eris.server_rule("fedavg", learning_rate=STEP)
    federation = eris.Federation(clients, start, eris.ERIS(), rule=rule, seed=SEED)
    with single_threaded():
        fit = federation.fit(ROUNDS, evaluate=tested, progress=False)
    for record in fit.history:
        if record.metrics:
            print(f"round {record.round}: test accuracy {record.metrics['accuracy']:.3f}")
    print(
        f"each client sent {fit.sent('Contribution') / 1e6:.1f} MB of its update a round, in fifths"
    )


if __name__ == "__main__":
    main()
