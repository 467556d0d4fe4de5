"""A transaction: SQL over any number of tables, from its text to what is to be published."""
