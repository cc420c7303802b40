"""Chat Completions, for endpoints. Clients' own pass as they are wherever they can, and are decoded
(see ``Exchange.decoded``) where something needs the form of a Responses request.
"""

from __future__ import annotations

from typing import Final

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.encode_request import encode_for_chat
from router.dialects.dialect import EndpointDialect

__all__ = ["ENDPOINT"]


ENDPOINT: Final = EndpointDialect(encode_for_chat, ChatDecoder)
