"""The node over gRPC."""
