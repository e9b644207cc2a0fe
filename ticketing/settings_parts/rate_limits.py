"""The default rates of the rate limits (docs/operations/rate-limits.md)."""

DEFAULT_RATES = (
    ("join", "JOIN", "20:1000", "0.5:10"),
    ("poll", "POLL", "300:3000", "2:20"),
    ("read", "READ", "300:3000", "5:50"),
    ("hold", "HOLD", "50:1000", "1:10"),
    ("offer", "OFFER", "50:1000", "1:20"),
    ("log-in", "LOG_IN", "2:300", "0.1:10"),
    ("password", "PASSWORD", "0.1:30", "0.1:10"),
    ("account", "ACCOUNT", "off", "0.02:100"),
    ("mail", "MAIL", "0.2:60", "0.003:5"),
    ("page", "PAGE", "100:3000", "5:100"),
    ("document", "DOCUMENT", "1:60", "0.5:20"),
    ("data-file", "DATA_FILE", "off", "0.02:3"),
    ("view", "VIEW", "2:600", "0.5:10"),
    ("search", "SEARCH", "5:600", "0.5:20"),
    ("write", "WRITE", "50:1000", "2:20"),
    ("code", "CODE", "5:200", "0.2:10"),
    ("feed", "FEED", "100:1000", "50:500"),
    ("webhook", "WEBHOOK", "1:60", "off"),
)
"""By kind: the part of the setting's name, and the rates of an address and of a token."""
