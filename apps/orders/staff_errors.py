"""What staff can be told. Each names what happened."""

from apps.kernel.http.problems import Problem


class RefundNotFailed(Problem):
    type, status, title = "refund-not-failed", 409, "This refund has not failed, or somebody has seen to it already."


class AmountTooLarge(Problem):
    """`left_minor` is what could be given back."""

    type, status, title = "amount-too-large", 409, "The order does not keep that much."


class AmountChanged(Problem):
    """Something was given back since this was decided. `now_minor` is the amount as it is. Nothing was done."""

    type, status, title = "amount-changed", 409, "Something was given back meanwhile; look again."
