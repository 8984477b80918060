"""How large the checks are: what the figures are stated for, or small enough to try the checks themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sizes:
    """Of the benchmarks, and of the trainings; by default what the figures are stated for."""

    keys: int = 50_331_648  # of the table's figures
    cells: int = 1 << 26  # of the table while the load is swept: a power of two
    table_batch: int = 8_388_608
    loads: tuple[float, ...] = (0.75, 0.375)
    swept_loads: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9)
    rows: int = 33_554_432  # of the embedding's figures
    batch: int = 65_536  # samples
    bag_slots: int = 26  # bags a sample
    dim: int = 128
    swept_dims: tuple[int, ...] = (16, 32, 64, 128, 256)
    hots: tuple[int, ...] = (4, 1)
    swept_hots: tuple[int, ...] = (1, 4, 16, 64)
    most_keys: int = 65_536 * 26 * 4  # a batch of the swept hots: with longer bags there are fewer
    alphas: tuple[float, ...] = (0, 1.1)
    repeats: int = 7
    epochs: int = 2  # of the Adult demo
    adult_batch: int = 256
    synthetic_batches: int = 40
    synthetic_batch: int = 4096
    saved_rows: int = 33_554_432  # of the table that is saved, recovered and trained beside a save
    copy_on_write_mib: int = 20_480  # memory for what steps change of it meanwhile
    training_seconds: float = 12  # beside saves, and without
    pushing_seconds: float = 0.5  # with each kind of durability
    contract: str = "*"  # a GoogleTest pattern over the contract suite's tests, without their backend


FULL = Sizes()

# For the device cpu. Loads are those that a table has by itself.
TINY = Sizes(
    keys=12_288, cells=1 << 14, table_batch=2048, loads=(0.375,), swept_loads=(0.25, 0.5),
    rows=3000, batch=40, bag_slots=3, dim=16, swept_dims=(16, 32), swept_hots=(1, 4), most_keys=40 * 3 * 2,
    repeats=2, epochs=1, adult_batch=2048, synthetic_batches=4, synthetic_batch=512,
    saved_rows=3000, copy_on_write_mib=64, training_seconds=0.1, pushing_seconds=0.1, contract="*/Lookup.*",
)  # fmt: skip


def quick(sizes: Sizes) -> Sizes:
    """The same at fewer points: uniform keys, the ends of what is swept, three timed runs, one epoch."""
    return replace(
        sizes,
        alphas=sizes.alphas[:1],
        swept_loads=(sizes.swept_loads[0], sizes.swept_loads[-1]),
        swept_dims=(sizes.swept_dims[0], sizes.swept_dims[-1]),
        swept_hots=(sizes.swept_hots[0], sizes.swept_hots[-1]),
        repeats=min(3, sizes.repeats),
        epochs=1,
    )
