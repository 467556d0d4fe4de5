"""The catalog on a Nessie server, by its REST API v2.

`protocol.py` commits and says how a branch is compared and swapped there, `refs.py` makes and moves refs, `reading.py`
reads, `transport.py` sends one request and tells what each way of failing means, `codec.py` knows Nessie's JSON.
`docs/decisions/0019-the-catalog-on-nessie.md` has the mapping, and what Nessie lacks.
"""
