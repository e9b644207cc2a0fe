"""A short name of a browser, for people who look for a log-in that was not theirs."""

_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("SamsungBrowser/", "Samsung Internet"), ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"), ("CriOS/", "Chrome"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip
"""Parts of a User-Agent header and what they mean; the first that occurs counts, since later ones are in it, too."""


def browser_name(user_agent: str) -> str:
    """Return for example "Firefox on Windows"; for an unknown program the beginning of what it calls itself."""
    browser = next((name for part, name in _BROWSERS if part in user_agent), "")
    system = next((name for part, name in _SYSTEMS if part in user_agent), "")
    return " on ".join(filter(None, (browser, system))) if browser else user_agent[:40]
