"""Verify, level 0: every file is there with its size, and a sample of them byte for byte."""
