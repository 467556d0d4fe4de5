"""Spark for the rooms that distribute work: one way to get a session, and to bring the package to the executors.

Importing this package needs no PySpark; calling it does.
"""

from headwater.spark.session import iceberg_jars, s3_file_io, s3_properties, ship_package, spark_session

__all__ = ["iceberg_jars", "s3_file_io", "s3_properties", "ship_package", "spark_session"]
