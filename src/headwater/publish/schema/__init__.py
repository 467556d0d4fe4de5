"""Changes of the schema: a script of DDL becomes one commit, or nothing.

`parse` reads the script without looking at the lake, `plan` folds its statements over the tables as they are, `judge`
looks at what would be, and `protocol` orders the reads, the checks of rows and the publish. `ddl` is the way back.
"""
