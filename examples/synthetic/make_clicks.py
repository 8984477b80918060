"""Describes presets of synthetic clicks, and writes their batches to Parquet: --help says more."""

from clicks.command import main

if __name__ == "__main__":
    main()
