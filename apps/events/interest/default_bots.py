"""Parts of the user agents of well-known programs that read pages: the first list of the rule about bots."""

DEFAULT_BOTS = (
    "bot", "crawl", "spider", "slurp", "curl/", "wget/", "python-requests", "python-urllib", "aiohttp", "httpx",
    "scrapy",
    "go-http-client", "java/", "okhttp", "libwww-perl", "headlesschrome", "phantomjs", "lighthouse", "pagespeed",
    "facebookexternalhit", "whatsapp", "preview", "monitor", "uptime", "pingdom", "feedfetcher", "mediapartners",
)  # fmt: skip
