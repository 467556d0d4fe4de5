"""Headwater: a lakehouse that runs across regions."""

__version__ = "0.1.0"
