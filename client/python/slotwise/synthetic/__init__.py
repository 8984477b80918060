"""Synthetic clicks from a planted model: endless, the same everywhere, with a best possible AUC.

    from slotwise import synthetic

    stream = synthetic.ClickStream(synthetic.PRESETS["quick"], seed=1, batch_size=2048)
    for clicks in stream.batches(0, 200):
        ps.lookup("ads", clicks.keys, clicks.offsets)         # learn clicks.labels
    test = stream.batch(2**32)                                # a batch that the loop never reaches
    print(synthetic.best_auc(test.probabilities))             # no model can beat this AUC

Every id of a slot has a hidden effect on the click's log-odds, and so have the numeric features.
Ids follow a power law and look like raw ids: any 64 bits. Nothing is stored for an id, so a
vocabulary may have any size. The command `slotwise-synth` writes the same batches to Parquet.
"""

from slotwise.synthetic.auc import auc, best_auc, expected_auc
from slotwise.synthetic.model import ClickModel, Slot
from slotwise.synthetic.power_law import PowerLaw
from slotwise.synthetic.presets import PRESETS, TAILS
from slotwise.synthetic.stream import Clicks, ClickStream

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
