"""Repair: heads that are elsewhere than their pins, though no sidecar says why."""
