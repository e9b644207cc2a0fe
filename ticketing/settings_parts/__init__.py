"""Groups of settings, which `ticketing/settings.py` imports."""
