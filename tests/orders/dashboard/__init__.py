"""Tests of the dashboards of events."""
