"""Limits of requests of which only those that fail are limited: static files that do not exist. They are refused in
`web`, before they take a thread of the site.
"""

from apps.kernel.fastpath.request import Scope

STATIC_FOLDER = "/static/"
STATIC_FILES_MAX = 4_096
_SERVED = frozenset((200, 206, 304))


class StaticFiles:
    """The static files that the site has served to this process. Requests for them are not limited. A request for
    another file counts as one for a page, so the first one for an existing file does, too."""

    def __init__(self) -> None:
        self._served: set[str] = set()

    def has_served(self, scope: Scope) -> bool:
        return scope["path"] in self._served and scope["method"] in ("GET", "HEAD")

    def note_response(self, scope: Scope, status: int) -> None:
        path: str = scope["path"]
        if status in _SERVED and path.startswith(STATIC_FOLDER) and len(self._served) < STATIC_FILES_MAX:
            self._served.add(path)
