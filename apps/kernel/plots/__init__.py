"""Plots as positions for an SVG that a template draws."""
