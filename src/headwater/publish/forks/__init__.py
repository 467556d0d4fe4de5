"""Forks: the sequence that a table has on a branch, `<table>/branches/<branch incarnation>/metadata/`, whose it is."""
