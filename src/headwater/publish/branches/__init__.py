"""Branches: making and deleting them, and merging one into another as a commit with two parents.

`ancestry.py` finds where two branches parted, `decide.py` says for every table what has to be done, `documents.py` and
`rows.py` combine a table that both sides changed, and `protocol.py` puts all of it into one wish.
"""
