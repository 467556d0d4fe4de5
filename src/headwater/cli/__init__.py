"""The `headwater` command."""
