"""Three events to click through: a theatre, an arena and a rush, their houses and posters drawn by code."""
