"""The node that takes change streams, keeps an index and visibility, and answers fresh reads.

Recovery is not built yet. Until it is, no node reaches READY except through the harness of the tests.
"""
