"""Who may ask what of a lake: tokens with roles, and requests that are carried out once."""

from headwater.access.model import Caller, Role, Token, TokenRefusedError
from headwater.access.requests import Requests
from headwater.access.tokens import Tokens

__all__ = ["Caller", "Requests", "Role", "Token", "TokenRefusedError", "Tokens"]
