"""What every room stands on: clock, randomness, ids, errors, settings, logs, metrics, retry, failpoints."""
