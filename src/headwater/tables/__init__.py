"""Iceberg tables: metadata v1 to v3 read, v2 and v3 written, and nothing moved.

The way of a change: rows become data files (`parquet`), deletes become deletion vectors or position deletes
(`vectors`, `parquet`), an `Edit` of files becomes a snapshot with its manifests (`snapshot`), and the result is a
staged change: new files and new metadata. Moving a table's head to it is not done here.

The way of a read: `metadata` decodes a document, `scan` plans which files a snapshot needs, `read` reads one of them.
PyIceberg models schemas, specs, expressions and metadata; what it cannot write is written here.
"""
