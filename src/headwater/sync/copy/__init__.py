"""Copy: bring the bytes of planned files to where the replica will look for them."""
