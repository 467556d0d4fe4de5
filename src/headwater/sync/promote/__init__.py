"""The step that readers see: a replica branch moves to the localised state of `main`, all tables at once."""
