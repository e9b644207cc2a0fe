"""Looking at the inventory afterwards: the audit, the reconciler, making up for an oversell, who had a seat when."""
