"""How our own server is told a whole answer at once. Imported by the server before Django is set up."""

WHOLE = "fairgate.whole"
"""Where it puts into the scope what sends one: `(status, head, body)`, awaited. Other servers put nothing there."""
