"""Holds: each request is checked, decided together with others, and committed or refused."""
