"""The staff's home page and the dashboard of each event, with exports."""
