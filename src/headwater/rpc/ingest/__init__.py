"""Stubs generated from proto/ by tools/protos."""
