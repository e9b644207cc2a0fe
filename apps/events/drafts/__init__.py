"""The admin's pages of a draft: its preview and its publication."""
