"""The proof of a replica: paths, presence, sizes, and the same rows as `main`."""
