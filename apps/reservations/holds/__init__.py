"""The hold: a request checked, decided together with others, and committed or refused."""
