"""Synthetic clicks from a planted model: endless, the same everywhere, with a best possible AUC.

    import clicks

    stream = clicks.ClickStream(clicks.PRESETS["quick"], seed=1, batch_size=2048)
    for batch in stream.batches(0, 200):
        ps.lookup("ads", batch.keys, batch.offsets)           # learn batch.labels
    test = stream.batch(2**32)                                # a batch that the loop never reaches
    print(clicks.best_auc(test.probabilities))                # no model can beat this AUC

Every id of a slot has a hidden effect on the click's log-odds, and so have the numeric features.
Ids follow a power law and look like raw ids: any 64 bits. Nothing is stored for an id, so a
vocabulary may have any size. `make_clicks.py` writes the same batches to Parquet.
"""

from clicks.auc import auc, best_auc, expected_auc
from clicks.model import ClickModel, Slot
from clicks.power_law import PowerLaw
from clicks.presets import PRESETS, TAILS
from clicks.stream import Clicks, ClickStream

__all__ = [
    "PRESETS",
    "TAILS",
    "ClickModel",
    "ClickStream",
    "Clicks",
    "PowerLaw",
    "Slot",
    "auc",
    "best_auc",
    "expected_auc",
]
