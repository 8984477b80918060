"""Planted models by name."""

from __future__ import annotations

from clicks.model import ClickModel, Slot

# HugeCTR's data generator has the same exponents under the same names (its PowerLaw_t). The larger
# the exponent, the fewer clicks come from rare ids. HugeCTR rounds draws of a continuous law; our
# law is over ranks.
TAILS = {"long": 0.9, "medium": 1.1, "short": 1.3}

_CATEGORIES = 26


def _industry(alpha: float) -> ClickModel:
    """Returns 26 slots and 13 numbers, as Criteo's click logs have, with 71 million ids.

    There are 24 single-hot slots, whose vocabularies are a geometric series from 4 to 30 million;
    one slot of 1 to 8 ids of 1 million; and one slot of 5 ids of 10 million, as histories have.
    """
    sizes = [round(4 * (30e6 / 4) ** (n / 23)) for n in range(24)]
    single = tuple(Slot(ids, alpha, deviation=0.3) for ids in sizes)
    several = (
        Slot(1_000_000, alpha, deviation=0.2, least=1, most=8),
        Slot(10_000_000, alpha, deviation=0.2, least=5, most=5),
    )
    pairs = tuple((slot, slot + 1) for slot in range(0, 12, 2))
    return ClickModel(
        single + several, bias=-2.5, pairs=pairs, pair_deviation=0.2, dense=13, dense_deviation=0.2
    )


# A trainer comes within 0.01 of this preset's best AUC after 600,000 samples. A trainer that sees
# so few samples never meets most of the 41 million possible ids, and could not learn them. So the
# tail is short, and the larger a vocabulary, the less an id of it matters. Even so, a trainer needs
# the whole model to get there: with seed 1, knowing everything but the effects of the three large
# slots would end 0.013 below the best, and all but the pair 0.023. A bag has at most two ids,
# because a sum of two is the same in any order, on any number of ranks.
_QUICK = ClickModel(
    (
        Slot(20, TAILS["medium"], deviation=1.0),
        Slot(100, TAILS["medium"], deviation=0.8),
        Slot(1_000, TAILS["short"], deviation=0.5),
        Slot(10_000, TAILS["short"], deviation=0.3),
        Slot(1_000_000, TAILS["short"], deviation=0.25),
        Slot(10_000_000, TAILS["short"], deviation=0.25),
        Slot(30_000_000, TAILS["short"], deviation=0.2, least=1, most=2),
    ),
    bias=-1.0,
    pairs=((0, 1),),
    pair_deviation=0.5,
    dense=4,
    dense_deviation=0.3,
)

PRESETS: dict[str, ClickModel] = {
    "quick": _QUICK,
    **{name: _industry(alpha) for name, alpha in TAILS.items()},
}
