"""Experiments with the search, views of events and recent searches."""
