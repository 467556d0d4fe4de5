"""Where a reader of a region should read now."""
