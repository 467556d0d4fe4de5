"""How far a run goes: one commit, or straight to the newest when the replica has fallen behind."""
