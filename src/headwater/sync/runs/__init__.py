"""What a sync has done so far, in the database: a run that dies is taken up where it stood."""
