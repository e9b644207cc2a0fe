"""Changes to a published event: its dates, on-sale, limits and fees. Each is recorded with its reason."""
