"""Rows of orders."""
