"""Feeds: message queues that programs use over HTTP, with receipt handles and visibility time-outs.

A message is delivered at least once. Of the messages with one key only the first unfinished one can be received, so
they are processed in the order in which they were sent. Senders and deletions lock their feed's row, which has the next
sequence number and the counts. Receivers lock messages only and wait for nothing (SKIP LOCKED).
"""
