"""The lines of the table of defences, and what ERIS table 6 and the older text's table 5 print.

The settings are those of table 5; only the last line of table 6 with its ω and A is a guess (A = 8,
ω = 9). σ is a multiple of the clipping bound, as in Opacus, which the authors used; s levels of a
uniform quantiser are log₂ s bits. Our QSGD draws over the whole update at once, with its norm; two
lines have it by segments of 512, as is usual.
"""

from __future__ import annotations

from eris.experiments.audits.defended import ClippedNoise, Defence, Printed, TopK

NEIGHBOURS = {2: 48, 4: 28, 8: 14, 16: 8}
"""Of a virtual node, by how many there are: so that one neighbour is sent chunks of nearly all."""


def _eris(aggregators: int, paper: Printed, omega: float = 0.0) -> Defence:
    label = f"ERIS, A = {aggregators}" + (f", ω = {omega:g}" if omega else "")
    kept = {"kept_fraction": 1 / (1 + omega)} if omega else {}
    return Defence(label, "eris", {"aggregators": aggregators, **kept}, "aggregator:0", paper=paper)


def _quantised(
    name: str, levels: int, number: int, paper: Printed | None = None, segment: int = 0
) -> Defence:
    settings = {"aggregators": 1, "compressor": f"{name}:{number}"}
    label = {"qsgd": "QSGD", "uniform": "uniform quantisation"}[name] + f", s = {levels}"
    label += f", by {segment}" if segment else ""
    return Defence(label, "eris", settings, "aggregator:0", segment=segment, paper=paper)


def _clipped(bound: float, sigma: float, paper: Printed) -> Defence:
    return Defence(f"DP-SGD, clip {bound:g}, σ {sigma:g}",
                   mechanism=ClippedNoise(bound, sigma), paper=paper)  # fmt: skip


def _top(sparsity: float, paper: Printed) -> Defence:
    kept = round(1 - sparsity, 6)
    return Defence(f"top-k, sparsity {sparsity:g}", mechanism=TopK(kept), sparse=True, paper=paper)


DEFENCES = (
    Defence("FedAvg", paper=Printed("0.193 ± 0.059", "21.9", "0.871", "0.666 ± 0.053")),
    _quantised("qsgd", 16, 16, Printed("0.209 ± 0.060", "21.5", "0.859", "0.670 ± 0.057")),
    _quantised("qsgd", 8, 8, Printed("0.250 ± 0.065", "20.6", "0.829", "0.671 ± 0.058")),
    _quantised("qsgd", 4, 4, Printed("0.343 ± 0.074", "18.4", "0.739", "0.676 ± 0.055")),
    *(_quantised("qsgd", levels, levels, segment=512) for levels in (16, 4)),
    _quantised("uniform", 16, 4, Printed("0.243 ± 0.066", "20.6", "0.833", "0.676 ± 0.055")),
    _quantised("uniform", 8, 3, Printed("0.302 ± 0.071", "18.8", "0.772", "0.673 ± 0.064")),
    _quantised("uniform", 4, 2, Printed("0.403 ± 0.079", "16.1", "0.634", "0.686 ± 0.053")),
    _top(0.90, Printed("0.228 ± 0.063", "20.5", "0.841", "0.670 ± 0.059")),
    _top(0.98, Printed("0.392 ± 0.083", "15.4", "0.644", "0.674 ± 0.051")),
    _top(0.99, Printed("0.456 ± 0.094", "12.4", "0.472", "0.679 ± 0.061")),
    _clipped(10, 1e-4, Printed("0.200 ± 0.062", "21.7", "0.867", "0.668 ± 0.062")),
    _clipped(10, 1e-3, Printed("0.340 ± 0.071", "18.5", "0.741", "0.671 ± 0.061")),
    _clipped(10, 1e-2, Printed("0.498 ± 0.091", "11.2", "0.252", "0.676 ± 0.051")),
    _clipped(1, 1e-4, Printed("0.432 ± 0.094", "11.8", "0.446", "0.676 ± 0.059")),
    _clipped(1, 1e-3, Printed("0.436 ± 0.095", "11.8", "0.445", "0.682 ± 0.048")),
    _clipped(1, 1e-2, Printed("0.472 ± 0.090", "11.1", "0.354", "0.689 ± 0.042")),
    *(
        Defence(f"PriPrune, p = {rate:g}", "priprune", {"rate": rate}, sparse=True,
                paper=Printed(*printed))
        for rate, printed in (
            (1e-5, ("0.305 ± 0.075", "19.1", "0.768", "0.686 ± 0.047")),
            (1e-3, ("0.506 ± 0.087", "9.6", "0.148", "0.688 ± 0.036")),
            (0.1, ("0.569 ± 0.067", "8.5", "0.094", "0.696 ± 0.035")),
        )
    ),
    _eris(2, Printed("0.458 ± 0.081", "11.7", "0.404", "0.665 ± 0.060")),
    _eris(4, Printed("0.514 ± 0.078", "9.2", "0.170", "0.675 ± 0.054")),
    _eris(8, Printed("0.546 ± 0.075", "8.6", "0.105", "0.678 ± 0.056")),
    _eris(2, Printed("0.453 ± 0.081", "11.7", "0.407", "0.676 ± 0.053"), omega=1),
    _eris(2, Printed("0.524 ± 0.078", "8.9", "0.134", "0.673 ± 0.052"), omega=4),
    _eris(2, Printed("0.547 ± 0.073", "8.6", "0.095", "0.683 ± 0.048"), omega=9),
    _eris(8, Printed("0.569 ± 0.073", "", "", "0.690 ± 0.064"), omega=9),
    Defence("EL (full sharing)", "el", {"degree": 50}, "neighbour"),
    *(
        Defence(f"EL, top 1/{k}", "el", {"degree": 50}, "neighbour", TopK(1 / k), sparse=True)
        for k in NEIGHBOURS
    ),
    *(
        Defence(f"Shatter, random 1/{k}", "shatter", {"virtual_nodes": k, "degree": degree},
                "neighbour", extra=13)
        for k, degree in NEIGHBOURS.items()
    ),
    *(
        Defence(f"the mean of {count} clients", observer="member", together=count)
        for count in (2, 4, 8)
    ),
    *(
        Defence(f"FedAvg-LDP, ε = {epsilon:g}", "fedavg-ldp", {"epsilon": epsilon})
        for epsilon in (10_000, 1_000, 100, 10)
    ),
)  # fmt: skip
RANDOM = Defence(
    "random gradients", paper=Printed("0.572 ± 0.065", "8.5", "0.094", "0.812 ± 0.047")
)
