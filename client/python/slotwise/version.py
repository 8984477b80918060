"""The version of all of Slotwise: CMake and the wheel read it here."""

__version__ = "0.1.0"
