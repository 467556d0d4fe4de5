"""The first step: what the target of a run needs that the replica may lack."""
