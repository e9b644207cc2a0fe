"""Pages that are the same for every visitor, kept in the memory of each process of `web`.

`cache.PageCache` answers requests for them; `lifetime` decides which responses may be kept; `page.Page` is one response
with its compressed copies; `version` knows when a page may have changed.
"""
