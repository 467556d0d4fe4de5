"""The fifth step: metadata of a table that names the files of one region, and nothing else."""
