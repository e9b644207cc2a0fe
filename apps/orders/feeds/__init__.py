"""Feeds for organizers' programs: HTTP API and admin over `apps/kernel/feeds`, opened by feed keys with scopes."""
