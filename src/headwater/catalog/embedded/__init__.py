"""The embedded catalog: refs in a sequenced manifest, commits and trees in immutable objects beside it.

`protocol.py` tells the promise and the order of steps on which it rests; `open.py` makes a lake, and opens one.
"""
