"""A changed date of an event: mails to its buyers, and the window in which they may return their tickets."""
