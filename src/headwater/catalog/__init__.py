"""The catalog: refs, commits, and what each commit holds, behind one port.

`port.py` says what everything above sees, `model.py` in which words, `judging.py` what a commit may do, `travel.py` how
a hash, a name or a time becomes a commit. `embedded/` keeps it all on the lake's own object store, `nessie/` on a
Nessie server.
"""
