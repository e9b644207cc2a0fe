"""The preview of a draft."""
