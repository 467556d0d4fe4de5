"""What a table declares to be found faster by: sort order, Bloom filters, statistics; and building what is missing.

Files without the declared order or a declared filter are written again, each by itself; statistics are computed for the
current snapshot. What is there stays as it is, so a second run finds nothing, and makes no commit.

It does not heal: a table whose head is ahead of its pin is refused before anything is written, whether a sidecar
explains it or not. The order of reads and writes is that of every rewrite: `publish/optimize/protocol.py`.
"""
