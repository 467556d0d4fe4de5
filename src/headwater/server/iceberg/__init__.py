"""The Iceberg REST catalog of a lake: every branch is a warehouse, and every write goes through the publisher."""
