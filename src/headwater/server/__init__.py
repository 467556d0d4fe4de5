"""The server: the lake API and the Iceberg REST catalog. What needs FastAPI is imported by who serves."""
