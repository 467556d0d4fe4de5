"""Loading: rows from files or from memory become rows of one table, by the same publish as everything else."""
