"""Keys of rows as bytes: one value, one spelling, whatever Arrow type carried it; and no two values share one."""

from headwater.ingest.keys.columns import KeyColumnError, encode
from headwater.ingest.keys.hashing import LONG_KEY_BYTES, hash_of, virtual_nodes
from headwater.ingest.keys.model import NO_KEYS, Keys, keys_of

__all__ = ["LONG_KEY_BYTES", "NO_KEYS", "KeyColumnError", "Keys", "encode", "hash_of", "keys_of", "virtual_nodes"]
