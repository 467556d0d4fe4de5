"""Object storage: one port with conditional operations, four backends, and wrappers around them.

Whoever needs a guarantee asks for it as a `Capability`; a store that cannot give it is refused by name.
"""
