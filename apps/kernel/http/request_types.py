"""What identity and origin judge by: a request and its answer, Django's or the lane's, which have the same names for
what is asked of them. One check for both."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from apps.kernel.fastpath.request import Request
    from apps.kernel.fastpath.response import Reply

Asked: TypeAlias = "HttpRequest | Request"
Answered: TypeAlias = "HttpResponse | Reply"
