"""Sequenced objects and their garbage collection boundaries.

A namespace's history is one line of objects, `<root>/<name>/<20 digits><suffix>`. Creating the next one is the
commit. The boundary keeps a writer that stalled for longer than the collector's patience from committing over
history. `protocol.py` tells the promise and the order of steps on which it rests.
"""
