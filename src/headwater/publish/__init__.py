"""Publishing: changes of many tables land as one commit, or not at all, whatever dies in between.

`protocol.py` has the four steps that every writer of heads takes, `recovery.py` what becomes of those who died on the
way, and `decide.py` the table by which that is decided.
"""
