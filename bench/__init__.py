"""Benchmarks, each beside a peer in the same run: `make bench`, or `make bench ONLY=name`."""
