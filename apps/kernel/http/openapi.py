"""Parameters, headers and answers that several operations of the API share, and how they are described."""

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

NO_STORE_HEADERS = {"Cache-Control": "no-store"}
"""Headers of an answer that is for one caller and one moment."""
IDEMPOTENCY_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, required=True)
NO_IDENTITY = OpenApiResponse(description="`token-missing`, `token-invalid`, `token-expired`")
NOT_YOURS = OpenApiResponse(description="`not-owner`, `token-wrong-event`")
