"""The argument block of a decode step: word indices by name (the manifest carries them; the runtime uses the names)."""

TOKEN = 0
POSITION = 1
FLAGS = 2
PAGE_TABLE = 3
LOGITS_ADDRESS = 4
NEXT_TOKEN = 6

ARGUMENTS = {
    "token": TOKEN,
    "position": POSITION,
    "flags": FLAGS,
    "page_table_base": PAGE_TABLE,
    "logits_address": LOGITS_ADDRESS,
    "next_token": NEXT_TOKEN,
}
ARGUMENT_WORDS = 8

FLAG_LOGITS = 0
"""Bit of ``flags``: compute logits and the greedy next token."""
FLAG_SEND_LOGITS = 1
"""Bit of ``flags``: send the logits to host memory (needs bit 0)."""
