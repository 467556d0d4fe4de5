"""The second step: which files are copied, from where to where, in which batches."""
